"""Keys that sign bundles, and the keys that a store trusts."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import branchmem as bm
import pytest
from branchmem.bundle import keys
from branchmem.bundle.keys import Key, fingerprint, is_fingerprint, is_signed, load_key, make_key, public_bytes
from branchmem.bundle.pins import Numbered, Pins, last_imported, next_number, note_exported, note_imported, pinned
from branchmem.errors import ExtraMissing, InvalidKey, PinRefused, UnknownPin
from branchmem.extra import extra
from branchmem.log import Writer
from bundle_files import BUNDLE, ORIGIN, key, written
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

SECRET = bytes([1]) * 32
PRIVATE = Ed25519PrivateKey.from_private_bytes(SECRET)
PEM = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def private_file(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_key_that_was_made_is_the_key_that_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "alice.pem"

    made = make_key(path)
    loaded = load_key(path)

    assert loaded.public == made.public
    assert loaded.sign(b"data") == made.sign(b"data")
    assert is_signed(made.public, loaded.sign(b"data"), b"data")
    assert not is_signed(made.public, loaded.sign(b"data"), b"Data")
    assert not is_signed(key(2).public, loaded.sign(b"data"), b"data")
    assert not is_signed(made.public, b"short", b"data")
    assert not is_signed(keys.public_text(b"\xff" * 32), loaded.sign(b"data"), b"data")
    assert make_key(tmp_path / "other.pem").public != made.public


def test_a_key_is_readable_to_its_owner_alone_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_key(tmp_path / "open.pem")
        os.umask(0o777)
        make_key(tmp_path / "closed.pem")
    finally:
        os.umask(before)
    for name in ("open.pem", "closed.pem"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_key_never_takes_the_place_of_anything(tmp_path: Path) -> None:
    path, link = tmp_path / "alice.pem", tmp_path / "link"
    public = make_key(path).public
    link.symlink_to(tmp_path / "nowhere")
    for there in (path, link, tmp_path):
        with pytest.raises(InvalidKey, match="something already, which was left alone"):
            make_key(there)
    assert load_key(path).public == public
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(InvalidKey, match="cannot be written"):
        make_key(tmp_path / "no folder" / "alice.pem")


def test_a_key_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(InvalidKey, match="No space left on device"):
            make_key(tmp_path / "alice.pem")
    assert not list(tmp_path.iterdir())


def test_a_private_key_shows_in_nothing_that_is_printed_or_pickled(tmp_path: Path) -> None:
    path = private_file(tmp_path / "alice.pem", PEM)
    loaded = load_key(path)
    secret = (SECRET.hex(), base64.b64encode(SECRET).decode(), PEM.decode().splitlines()[1], repr(SECRET))

    for shown in (repr(loaded), str(loaded), loaded.public, loaded.fingerprint, f"{vars(type(loaded))}"):
        assert not any(form in shown for form in secret)
    assert repr(loaded) == f"<Key {loaded.fingerprint}>"
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            leave(loaded)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")), "it is encrypted"),
        (PRIVATE.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), "no private key in PEM"),
        (PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), "no private key in PEM"),
        (PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "a public key"),
        (
            ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "another type than Ed25519",
        ),
        (
            x25519.X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "another type than Ed25519",
        ),
        (
            ec.generate_private_key(ec.SECP256R1()).private_bytes(
                Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"word")
            ),
            "it is encrypted",
        ),
        (PEM[:-40], "no private key in PEM"),
        (PEM.replace(PEM.splitlines()[1], b"A" * 64), "no private key in PEM"),
        (b"", "no private key in PEM"),
        (SECRET, "no private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\n" * 3000, "more than any key"),
    ],
)
def test_what_is_no_key_for_bundles_is_named_and_not_repeated(tmp_path: Path, data: bytes, why: str) -> None:
    path = private_file(tmp_path / "alice.pem", data)

    with pytest.raises(InvalidKey, match=why) as refusal:
        load_key(path)

    assert refusal.value.place == str(path)
    assert refusal.value.__cause__ is None
    assert PEM.decode().splitlines()[1] not in str(refusal.value)


def test_a_key_that_openssl_wrote_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "openssl.pem"
    try:
        made = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl")
    assert made.returncode == 0, made.stderr
    path.chmod(0o600)
    assert is_signed(load_key(path).public, load_key(path).sign(b"data"), b"data")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o660, 0o601])
def test_a_key_that_others_may_read_is_refused_with_the_way_out(tmp_path: Path, mode: int) -> None:
    path = private_file(tmp_path / "alice.pem", PEM, mode)
    with pytest.raises(InvalidKey, match=f"others may read or write it: chmod 600 {path}"):
        load_key(path)
    path.chmod(0o400)
    assert load_key(path).public == Key.from_pem(PEM).public == key(1).public


def test_files_that_cannot_be_read_are_no_keys(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(InvalidKey, match="no regular file"):
            load_key(path)
    for path in (tmp_path / "missing", pipe / "below", Path("\0")):
        with pytest.raises(InvalidKey, match="cannot be read"):
            load_key(path)


def test_a_public_key_is_written_in_one_way() -> None:
    public = key().public

    assert public == "ed25519:iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w"
    assert key().fingerprint == fingerprint(public) == "bm-34750f98bd59fcfc946da45aaabe933b"
    assert len(public_bytes(public)) == 32
    assert is_fingerprint(key().fingerprint)
    for text in (
        *(public[:-1], public + "=", public + "\n", " " + public, public.upper(), public[8:], public[:-1] + "x"),
        *("", "ed25519:", "ed25519:" + "=" * 43, "ed25519:" + "/" * 43, "ed25519:" + "é" * 43, PEM.decode()),
    ):
        with pytest.raises(InvalidKey, match="43 letters") as refusal:
            public_bytes(text)
        assert text in ("", "ed25519:") or text not in str(refusal.value)
    for text in (public, "bm-", "bm-" + "A" * 32, key().fingerprint + "0", key().fingerprint + "\n"):
        assert not is_fingerprint(text)


WITHOUT = """
import sys
from pathlib import Path
package, folder, public = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
sys.modules[package] = None

import branchmem
from branchmem.bundle.file import BundleFile
from branchmem.bundle.keys import load_key, make_key
from branchmem.bundle.pins import Pins
from branchmem.bundle.writing import BundleWriter
from branchmem.errors import ExtraMissing

with branchmem.open_temporary() as store:
    Pins(store).pin(public, "alice")

def read():
    with BundleFile.open(folder / "bundle") as bundle:
        bundle.verify()

def write():
    with BundleWriter(folder / "new") as writer:
        writer.write([(b"\\x92\\x00\\xa1a", b"\\x90")])
        writer.finish(None, id="", origin="", number=1, seq=1, created=None, refs={})

verbs = {
    "cryptography": [read, lambda: make_key(folder / "new.pem"), lambda: load_key(folder / "alice.pem")],
    "zstandard": [read, write],
}
for verb in verbs[package]:
    try:
        verb()
    except ExtraMissing as error:
        print(error)
"""


@pytest.mark.parametrize(("package", "verbs"), [("cryptography", 3), ("zstandard", 2)])
def test_without_the_extra_its_name_is_told_and_pins_still_work(tmp_path: Path, package: str, verbs: int) -> None:
    written(tmp_path / "bundle")
    private_file(tmp_path / "alice.pem", PEM)

    words = [sys.executable, "-c", WITHOUT, package, str(tmp_path), key().public]
    ran = subprocess.run(words, capture_output=True, text=True)

    told = f"bundles need the package {package}, which is not installed: pip install 'branchmem[bundles]'"
    assert (ran.stdout.splitlines(), ran.stderr, ran.returncode) == ([told] * verbs, "", 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alice.pem", "bundle"]


def test_what_an_installed_package_lacks_itself_is_no_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zstandard", "cffi"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ExtraMissing), extra("zstandard", wanted="bundles", name="bundles"):
        import_module("zstandard")
    with (
        pytest.raises(ModuleNotFoundError, match="cffi") as missing,
        extra("zstandard", wanted="bundles", name="bundles"),
    ):
        import_module("cffi")
    assert not isinstance(missing.value, ExtraMissing)


@pytest.fixture
def log(path: Path) -> Iterator[bm.Store]:
    """An empty store."""
    with bm.open(path) as store:
        yield store


def test_a_pinned_key_is_known_by_its_name_in_every_process(log: bm.Store, path: Path) -> None:
    pin = Pins(log).pin(key(1).public, "alice")
    Pins(log).pin(key(2).public, "bob@laptop")

    with bm.open(path) as elsewhere:
        pins = Pins(elsewhere)
        assert dict(pins) == {"alice": key(1).public, "bob@laptop": key(2).public}
        assert pins.list()[0] == pin
        assert (len(pins), list(pins)) == (2, ["alice", "bob@laptop"])
        assert str(pin) == f"alice {key(1).fingerprint} {key(1).public}"
        assert pin.to_dict() == {"name": "alice", "public": key(1).public, "fingerprint": key(1).fingerprint}
        assert elsewhere.snapshot(lambda reader: pinned(reader, key(2).public), tables=("pins",)) == "bob@laptop"
        assert elsewhere.snapshot(lambda reader: pinned(reader, key(3).public), tables=("pins",)) is None


def test_pinning_writes_no_event(log: bm.Store) -> None:
    digest = log.digest()
    Pins(log).pin(key(1).public, "alice")
    Pins(log).unpin("alice")
    assert (log.digest(), len(log.log)) == (digest, 0)


def test_one_name_is_one_key(log: bm.Store) -> None:
    pins = Pins(log)
    pins.pin(key(1).public, "alice")

    assert pins.pin(key(1).public, "alice").name == "alice"
    with pytest.raises(PinRefused, match=f"it is the name of {key(1).fingerprint}"):
        pins.pin(key(2).public, "alice")
    with pytest.raises(PinRefused, match="the key is 'alice' here"):
        pins.pin(key(1).public, "bob")
    assert dict(pins) == {"alice": key(1).public}


@pytest.mark.parametrize("name", ["", " alice", "a\nb", "\x1b[2J", "x" * 257, "\ud800"])
def test_a_name_that_does_not_fit_on_a_line_is_refused(log: bm.Store, name: str) -> None:
    with pytest.raises(PinRefused):
        Pins(log).pin(key(1).public, name)
    assert not Pins(log)


def test_what_is_no_public_key_is_not_pinned_and_not_repeated(log: bm.Store) -> None:
    for text in (PEM.decode(), key().fingerprint, "alice", ""):
        with pytest.raises(InvalidKey) as refusal:
            Pins(log).pin(text, "alice")
        assert not text or text not in str(refusal.value)
    assert not Pins(log)


def test_a_key_that_is_unpinned_is_not_trusted_and_may_be_pinned_again(log: bm.Store) -> None:
    pins = Pins(log)
    pins.pin(key(1).public, "alice")

    assert pins.unpin("alice").public == key(1).public
    assert "alice" not in pins
    for forget in (pins.unpin, pins.__getitem__):
        with pytest.raises(UnknownPin, match="no key is pinned as 'alice'"):
            forget("alice")
    assert pins.pin(key(1).public, "alice 2").name == "alice 2"


def test_the_highest_bundle_of_an_issuer_and_log_is_kept_also_when_the_pin_goes(log: bm.Store) -> None:
    alice, bob, other = key(1).public, key(2).public, "ff" * 16
    Pins(log).pin(alice, "alice")

    def note(issuer: str, origin: str, number: int) -> None:
        def plan(writer: Writer) -> tuple[tuple[()], None]:
            note_imported(writer, issuer, origin, Numbered(number, BUNDLE))
            return (), None

        log.transact(plan, tables=("pins",))

    def last(issuer: str, origin: str) -> Numbered | None:
        return log.snapshot(lambda reader: last_imported(reader, issuer, origin), tables=("pins",))

    assert last(alice, ORIGIN) is None
    for number in (3, 5, 4):
        note(alice, ORIGIN, number)
    note(alice, other, 9)
    note(bob, ORIGIN, 1)
    Pins(log).unpin("alice")

    assert last(alice, ORIGIN) == (5, BUNDLE)
    assert (last(alice, other), last(bob, ORIGIN), last(bob, other)) == ((9, BUNDLE), (1, BUNDLE), None)


def test_the_numbers_of_bundles_rise_with_the_clock_and_against_it(log: bm.Store, path: Path) -> None:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    for microseconds, number in ((-5, 1), (0, 2), (90, 90), (90, 91), (17, 92), (200, 200)):
        with bm.open(path) as elsewhere:
            now = start + timedelta(microseconds=microseconds)

            def take(writer: Writer, now: datetime = now) -> tuple[tuple[()], int]:
                taken = next_number(writer, now)
                note_exported(writer, Numbered(taken, BUNDLE))
                return (), taken

            assert elsewhere.transact(take, tables=("pins",))[1] == number

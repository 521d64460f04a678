//! Memory for large tables in large pages, where the system has them.
//!
//! Looking an id up goes to places all over tables of many megabytes. In pages of
//! 4 KiB nearly each of these misses the processor's table of pages as well; in pages
//! of 2 MiB hardly any does. Linux gives such pages to whoever asks with `madvise`;
//! where it does not, nothing is lost. What fills no large page lies in small ones, and what
//! is not touched takes no memory. A table grows by moving its pages, most often without a copy.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::null_mut;

/// A large page. Blocks of this size or more are maps of their own, which begin with one.
const PAGE: usize = 2 << 20;
/// A multiple of every size of small pages.
const UNIT: usize = 64 << 10;

/// The system's allocator, with large blocks in large pages.
pub struct LargePages;

/// Whether a block is a map of its own; a map is aligned to a large page, and to no more.
const fn is_map(layout: Layout) -> bool {
    layout.size() >= PAGE && layout.align() <= PAGE
}

/// The length of the map for a block.
const fn length(size: usize) -> usize {
    size.next_multiple_of(UNIT)
}

/// A new map at the beginning of a large page, zeroed; null where there is no room.
#[expect(unsafe_code, reason = "maps are made by address")]
fn map(length: usize) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the map is new, and what is taken from its ends is all its own.
    unsafe {
        let wide = libc::mmap(null_mut(), length + PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if wide == libc::MAP_FAILED {
            return null_mut();
        }
        let skip = wide.align_offset(PAGE);
        if skip > 0 {
            libc::munmap(wide, skip);
        }
        libc::munmap(wide.byte_add(skip + length), PAGE - skip);
        wide.byte_add(skip)
    }
}

/// Ask for large pages for a whole map, so that it stays one to the kernel; what does not fill one gets small ones.
///
/// # Safety
/// The block must be null, or a map for `size` bytes.
#[expect(unsafe_code, reason = "advice is given by address")]
unsafe fn advised(block: *mut c_void, size: usize) -> *mut u8 {
    if !block.is_null() {
        // SAFETY: these pages are the block's; the advice changes nothing in them.
        unsafe { libc::madvise(block, length(size), libc::MADV_HUGEPAGE) };
    }
    block.cast()
}

/// Make a map longer or shorter, where it is or elsewhere; null, and nothing happened, where there is no room.
///
/// # Safety
/// The block must be a map of `size` bytes, to be used no more under its old address.
#[expect(unsafe_code, reason = "maps are moved by address")]
unsafe fn resized(block: *mut c_void, size: usize, wanted: usize) -> *mut c_void {
    let (from, to) = (length(size), length(wanted));
    // SAFETY: the map is the caller's, and what it is moved to is new.
    unsafe {
        if libc::mremap(block, from, to, 0) != libc::MAP_FAILED {
            return block;
        }
        let elsewhere = map(to);
        if elsewhere.is_null() {
            return null_mut();
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if libc::mremap(block, from, to, flags, elsewhere) != libc::MAP_FAILED {
            return elsewhere;
        }
        // What was elsewhere may be gone, and another's by now.
        let copy = map(to);
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(block.cast::<u8>(), copy.cast(), size.min(wanted));
            libc::munmap(block, from);
        }
        copy
    }
}

// SAFETY: a block is a map or the system's: which of them it is follows from its layout, by which it also
// goes back.
#[expect(unsafe_code, reason = "an allocator is unsafe to write; replay takes a third less time")]
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on; a map is as long as it is asked to be.
        unsafe {
            if is_map(layout) { advised(map(length(layout.size())), layout.size()) } else { System.alloc(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as `alloc`; a new map is zeroed.
        unsafe { if is_map(layout) { self.alloc(layout) } else { System.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `alloc` took it from the same of the two.
        unsafe {
            if is_map(layout) {
                libc::munmap(block.cast(), length(layout.size()));
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: what is resized by one of the two comes from it; what moves from one to the other is copied
        // as far as both reach, and goes back as it was taken; `size` is not zero by the caller's promise.
        unsafe {
            let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
            match (is_map(layout), is_map(wanted)) {
                (false, false) => System.realloc(block, layout, size),
                (true, true) => advised(resized(block.cast(), layout.size(), size), size),
                _ => {
                    let moved = self.alloc(wanted);
                    if !moved.is_null() {
                        std::ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a block lies within one map of the kernel's, which alone can be moved on every Linux.
    fn is_whole(block: *const u8, size: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let range = |line: &str| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
        };
        maps.lines().filter_map(range).any(|(from, to)| from <= block.addr() && block.addr() + size <= to)
    }

    #[test]
    #[expect(unsafe_code, reason = "an allocator is unsafe to use")]
    fn a_block_stays_whole_and_keeps_its_bytes_however_it_is_resized() {
        let memory = LargePages;
        let of = |size| Layout::from_size_align(size, 8).unwrap();
        let mut size = 100_000;
        // SAFETY: sizes are not zero, and each block is used and freed by the layout that it has.
        unsafe {
            let mut block = memory.alloc_zeroed(of(size));
            block.write(7);
            for wanted in [2_621_440, 5_242_880, 10_485_760, 7_000_001, 3_000_000, 40_000_000, 2_097_152, 50, 2_097_151]
            {
                let in_its_way = memory.alloc(of(size));
                block = memory.realloc(block, of(size), wanted);
                memory.dealloc(in_its_way, of(size));
                size = wanted;
                assert!(size < PAGE || (block.addr().is_multiple_of(PAGE) && is_whole(block, size)), "{size}");
                assert_eq!(block.read(), 7, "{size}");
                block.add(size - 1).write(9);
            }
            memory.dealloc(block, of(size));
            let zeroed = memory.alloc_zeroed(of(3 * PAGE + 5));
            assert!((0..3 * PAGE + 5).all(|at| zeroed.add(at).read() == 0));
            memory.dealloc(zeroed, of(3 * PAGE + 5));
        }
    }
}

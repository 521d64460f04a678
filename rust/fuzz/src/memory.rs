//! How many bytes of memory a thread holds, and held at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Below zero where a thread gives back what another took.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted. A block that grows counts twice while it moves.
pub struct Counted;

fn took(size: usize) {
    let held = HELD.get() + size.cast_signed();
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

fn gave(size: usize) {
    HELD.set(HELD.get() - size.cast_signed());
}

/// What `act` gives, and the bytes that this thread held at its peak beyond those before it.
pub fn peak_of<T>(act: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let given = act();
    (given, (MOST.get() - before).unsigned_abs())
}

// SAFETY: every call is passed on to the system's allocator with the caller's promise; counting touches no block.
#[expect(unsafe_code, reason = "an allocator is unsafe to write; nothing else sees what the decoder holds in between")]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size);
        gave(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

//! Memory for large tables in large pages, where the system has them.
//!
//! Looking an id up goes to places all over tables of many megabytes. In pages of
//! 4 KiB nearly each of these misses the processor's table of pages as well; in pages
//! of 2 MiB hardly any does. Linux gives such pages to whoever asks for aligned memory
//! with `madvise`; where it does not, nothing is lost. Only whole pages are asked for, so that what
//! is not touched still takes no memory.

use std::alloc::{GlobalAlloc, Layout, System};

const PAGE: usize = 2 << 20;

/// The system's allocator, with whatever fills a large page aligned to one.
pub struct LargePages;

fn aligned(layout: Layout) -> Layout {
    if layout.size() < PAGE { layout } else { layout.align_to(PAGE).unwrap_or(layout) }
}

// SAFETY: every block is the system's, and goes back to it under the layout by which it was taken:
// `aligned` of what the caller names, which follows from the caller's layout alone.
#[expect(unsafe_code, reason = "an allocator is unsafe to write; looking an id up gets a quarter faster")]
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise on `layout` holds for `aligned(layout)`, which is as large.
        let block = unsafe { System.alloc(aligned(layout)) };
        if layout.size() >= PAGE && !block.is_null() {
            // SAFETY: these pages lie within the block; the advice changes nothing in them.
            unsafe { libc::madvise(block.cast(), layout.size() / PAGE * PAGE, libc::MADV_HUGEPAGE) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `alloc` took it under this layout.
        unsafe { System.dealloc(block, aligned(layout)) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.size().max(size) < PAGE {
            // SAFETY: `alloc` took it under this very layout, and the new size is the caller's promise.
            return unsafe { System.realloc(block, layout, size) };
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return std::ptr::null_mut() };
        // SAFETY: `size` is not zero by the caller's promise; what is copied lies within both blocks, which
        // are two; the old one goes back as it was taken.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                std::ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

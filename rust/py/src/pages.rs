//! Memory for large tables in large pages, where the system has them.
//!
//! Looking an id up goes to places all over tables of many megabytes. In pages of
//! 4 KiB nearly each of these misses the processor's table of pages as well; in pages
//! of 2 MiB hardly any does. Linux gives such pages to whoever asks with `madvise`;
//! where it does not, nothing is lost. Only whole pages are asked for, so that what
//! is not touched still takes no memory. A table grows by moving its pages: nothing is
//! copied, and no page is split.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::null_mut;

/// A large page. Blocks of this size are maps of their own, which begin with one.
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

/// Ask for large pages for all that fill one.
///
/// # Safety
/// The block must be a map, null or of `size` bytes or more.
#[expect(unsafe_code, reason = "advice is given by address")]
unsafe fn advised(block: *mut c_void, size: usize) -> *mut u8 {
    if !block.is_null() {
        // SAFETY: these pages lie within the block; the advice changes nothing in them.
        unsafe { libc::madvise(block, size / PAGE * PAGE, libc::MADV_HUGEPAGE) };
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
    // SAFETY: the map is the caller's; the second one is new, and the first is laid over its beginning.
    unsafe {
        if libc::mremap(block, from, to, 0) != libc::MAP_FAILED {
            return block;
        }
        let elsewhere = map(to);
        if elsewhere.is_null() {
            return null_mut();
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if libc::mremap(block, from, from, flags, elsewhere) == libc::MAP_FAILED {
            libc::munmap(elsewhere, to);
            return null_mut();
        }
        elsewhere
    }
}

// SAFETY: a block is a map or the system's: which of them it is follows from its layout, by which it also
// goes back.
#[expect(unsafe_code, reason = "an allocator is unsafe to write; looking an id up gets a quarter faster")]
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

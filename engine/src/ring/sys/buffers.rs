//! The receive buffers: memory that the kernel fills and we lend out in
//! slices.

use io_uring::types;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Receive buffers shared with the kernel: `count` buffers of `size` bytes.
pub(super) struct Buffers {
    mem: NonNull<u8>,
    mem_layout: Layout,
    ring: NonNull<types::BufRingEntry>,
    ring_layout: Layout,
    count: u16,
    size: u32,
    tail: Cell<u16>,
    /// How many [`Slice`]s point into each buffer. Zero: the kernel has it.
    uses: Box<[Cell<u32>]>,
    free: Cell<u32>,
}

impl Buffers {
    pub(super) fn new(count: u16, size: u32) -> Rc<Self> {
        assert!(
            count.is_power_of_two(),
            "a buffer ring's length is a power of two"
        );
        let mem_layout = Layout::from_size_align(usize::from(count) * size as usize, PAGE)
            .expect("buffer memory fits the address space");
        let ring_layout =
            Layout::from_size_align(usize::from(count) * size_of::<types::BufRingEntry>(), PAGE)
                .expect("buffer ring fits the address space");
        let buffers = Rc::new(Self {
            mem: allocate(mem_layout),
            mem_layout,
            ring: allocate(ring_layout).cast(),
            ring_layout,
            count,
            size,
            tail: Cell::new(0),
            uses: vec![Cell::new(0); usize::from(count)].into(),
            free: Cell::new(0),
        });
        for id in 0..count {
            buffers.give_to_kernel(id);
        }
        buffers
    }

    /// Where the kernel finds the buffers.
    pub(super) fn ring_address(&self) -> u64 {
        self.ring.as_ptr() as u64
    }

    /// How many buffers there are.
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// How many of them the kernel has.
    pub(super) fn free(&self) -> u32 {
        self.free.get()
    }

    fn give_to_kernel(&self, id: u16) {
        let tail = self.tail.get();
        let at = usize::from(tail & (self.count - 1));
        // SAFETY: `at` is below `count`, the entry lies inside the allocation
        // of `ring`, and the kernel does not read it before the tail moves.
        unsafe {
            let entry = &mut *self.ring.as_ptr().add(at);
            entry.set_addr(self.address(id) as u64);
            entry.set_len(self.size);
            entry.set_bid(id);
        }
        self.tail.set(tail.wrapping_add(1));
        self.free.set(self.free.get() + 1);
        // SAFETY: the tail lies in the first entry's padding, is aligned, and
        // is read by the kernel as an atomic 16-bit integer.
        unsafe {
            let shared = types::BufRingEntry::tail(self.ring.as_ptr()).cast::<AtomicU16>();
            (*shared).store(self.tail.get(), Ordering::Release);
        }
    }

    fn address(&self, id: u16) -> *mut u8 {
        debug_assert!(id < self.count);
        // SAFETY: `id` is below `count`, so the offset is inside `mem`.
        unsafe { self.mem.as_ptr().add(usize::from(id) * self.size as usize) }
    }

    /// The kernel filled `len` bytes of buffer `id`.
    pub(super) fn filled(self: &Rc<Self>, id: u16, len: u32) -> Slice {
        debug_assert_eq!(self.uses[usize::from(id)].get(), 0);
        assert!(len <= self.size, "the kernel filled no more than a buffer");
        self.uses[usize::from(id)].set(1);
        self.free.set(self.free.get() - 1);
        Slice {
            buffers: Rc::clone(self),
            id,
            start: 0,
            len,
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: both were allocated with these layouts; no receive is armed
        // that could fill them, since `Sys` gives up its `Rc` only when the
        // kernel owes nothing, and no `Slice` is left, since each holds an
        // `Rc` too.
        unsafe {
            dealloc(self.mem.as_ptr(), self.mem_layout);
            dealloc(self.ring.as_ptr().cast(), self.ring_layout);
        }
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layouts made above are never of size zero.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// A part of a receive buffer. The buffer goes back to the kernel when its
/// last slice is dropped.
pub struct Slice {
    buffers: Rc<Buffers>,
    id: u16,
    start: u32,
    len: u32,
}

impl Slice {
    /// Cuts off and returns the first `at` bytes.
    pub fn split_to(&mut self, at: usize) -> Slice {
        let at = u32::try_from(at).expect("a buffer is smaller than 4 GiB");
        assert!(at <= self.len, "split inside the slice");
        let uses = &self.buffers.uses[usize::from(self.id)];
        uses.set(uses.get() + 1);
        let head = Slice {
            buffers: Rc::clone(&self.buffers),
            id: self.id,
            start: self.start,
            len: at,
        };
        self.start += at;
        self.len -= at;
        head
    }

    /// Drops the first `n` bytes.
    pub fn advance(&mut self, n: usize) {
        let n = u32::try_from(n).expect("a buffer is smaller than 4 GiB");
        assert!(n <= self.len, "advance inside the slice");
        self.start += n;
        self.len -= n;
    }

    /// Keeps only the first `n` bytes.
    pub fn truncate(&mut self, n: usize) {
        self.len = self.len.min(u32::try_from(n).unwrap_or(u32::MAX));
    }
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: start + len <= size by construction; the kernel does not
        // write to a buffer before it is given back, which needs every slice
        // dropped.
        unsafe {
            std::slice::from_raw_parts(
                self.buffers.address(self.id).add(self.start as usize),
                self.len as usize,
            )
        }
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        let uses = &self.buffers.uses[usize::from(self.id)];
        uses.set(uses.get() - 1);
        if uses.get() == 0 {
            self.buffers.give_to_kernel(self.id);
        }
    }
}

const PAGE: usize = 4096;

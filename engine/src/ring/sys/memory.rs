//! The allocator, as far as the kernel is concerned.

/// Gives memory back that is free but still the process's. Takes milliseconds
/// where much is free.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes no pointers, may be called by any thread at any time
    // (malloc_trim(3), MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}

//! Memory that both processes have, for the code and the operands of random instructions.

/// Two shared mappings within the lower 2 GiB, so that each kind of address reaches them.
pub(crate) const CODE: u64 = 0x7000_0000;
pub(crate) const DATA: u64 = 0x7001_0000;
pub(crate) const MAPPED: usize = 0x2_0000;

/// What instructions load and store lies around the border of two pages.
pub(crate) const AREA: u64 = DATA + 0x1000 - AREA_BYTES as u64 / 2;
pub(crate) const AREA_BYTES: usize = 1024;

/// Where FS and GS begin.
pub(crate) const BASE: u64 = 0x40;

/// The mapping that both processes share.
pub(crate) struct Shared(*mut u8);

impl Shared {
    pub(crate) fn map() -> Self {
        // SAFETY: the kernel puts it where nothing else is, or fails.
        let at = unsafe {
            libc::mmap(
                CODE as *mut libc::c_void,
                MAPPED,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        assert_eq!(at as u64, CODE, "{}", std::io::Error::last_os_error());
        Self(at.cast())
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let offset = usize::try_from(address - CODE).unwrap();
        assert!(offset + bytes.len() <= MAPPED);
        // SAFETY: the range lies in the mapping.
        let to = unsafe { self.0.add(offset) };
        // SAFETY: nothing else uses it, as the child is stopped.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    pub(crate) fn area(&self) -> [u8; AREA_BYTES] {
        let mut bytes = [0; AREA_BYTES];
        let offset = usize::try_from(AREA - CODE).unwrap();
        // SAFETY: the range lies in the mapping.
        let from = unsafe { self.0.add(offset) };
        // SAFETY: nothing else uses it, as the child is stopped.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), AREA_BYTES) };
        bytes
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is used no longer.
        unsafe { libc::munmap(self.0.cast(), MAPPED) };
    }
}

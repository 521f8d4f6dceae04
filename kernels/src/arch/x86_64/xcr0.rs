//! The register state that the operating system saves.

/// Whether the operating system saves all register state in `wanted`, bits of XCR0. CPUID alone does not show this:
/// hypervisors and boot options can leave the state disabled.
pub(crate) fn system_saves(wanted: u64) -> bool {
    use core::arch::x86_64::{__cpuid, _xgetbv};

    #[target_feature(enable = "xsave")]
    fn state() -> u64 {
        // SAFETY: XCR0 exists wherever XGETBV does.
        unsafe { _xgetbv(0) }
    }

    // Miri has no CPUID, so it runs only the scalar set.
    if cfg!(miri) {
        return false;
    }
    const XSAVE_AND_OSXSAVE: u32 = 0b11 << 26;
    let features = __cpuid(1).ecx;
    if features & XSAVE_AND_OSXSAVE != XSAVE_AND_OSXSAVE {
        return false;
    }
    // SAFETY: CPUID reports XSAVE, and the operating system has enabled it.
    unsafe { state() & wanted == wanted }
}

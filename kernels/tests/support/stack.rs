//! The stack that a call uses: it runs on a stack that was filled with a pattern, and the part that still
//! has the pattern was not used.

use simdformer_kernels::Isa;

pub const KIB: usize = 1 << 10;
/// The limit that the crate documents for kernels of rows.
pub const OTHERS: usize = 16 * KIB;
/// The limit that the crate documents for attention.
pub const ATTENTION: usize = 32 * KIB;

/// The limit that the crate documents for attention with int8 products. Plain Rust on AArch64 takes 68 KiB.
pub const ATTENTION_INT8: usize = if cfg!(target_arch = "aarch64") { 72 * KIB } else { 40 * KIB };

/// The bytes of stack that a thread uses when it runs `call`.
pub fn reach(call: &mut (dyn FnMut() + Send)) -> usize {
    const LEN: usize = 1 << 19;
    const FILLING: u8 = 0xa5;
    type Call<'a> = &'a mut (dyn FnMut() + Send);
    extern "C" fn start(call: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the pointer was passed below, and its owner waits for this thread.
        let call = unsafe { &mut *call.cast::<Call<'_>>() };
        call();
        core::ptr::null_mut()
    }
    let mut call: Call<'_> = call;
    // SAFETY: the attributes and the memory live until the thread has been joined, nothing else uses
    // the memory until then, and `start` gets the type that it expects. A panic in `call` aborts.
    unsafe {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(core::ptr::null_mut(), LEN, access, kind, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        memory.cast::<u8>().write_bytes(FILLING, LEN);
        let mut attributes = core::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert_eq!(libc::pthread_attr_setstack(&mut attributes, memory, LEN), 0);
        let mut thread = core::mem::zeroed();
        let argument = (&raw mut call).cast();
        assert_eq!(libc::pthread_create(&mut thread, &attributes, start, argument), 0);
        assert_eq!(libc::pthread_join(thread, core::ptr::null_mut()), 0);
        libc::pthread_attr_destroy(&mut attributes);
        let bytes = core::slice::from_raw_parts(memory.cast::<u8>(), LEN);
        let untouched = bytes.iter().take_while(|&&byte| byte == FILLING).count();
        libc::munmap(memory, LEN);
        LEN - untouched
    }
}

/// What debug assertions and overflow checks may add to the stack of a call, by the documentation of the crate.
const ASSERTIONS: usize = if cfg!(debug_assertions) { 2048 } else { 0 };

/// Runs `call` and checks that it uses at most `most` bytes more than an empty thread.
pub fn check(isa: Isa, what: &str, most: usize, mut call: impl FnMut() + Send) {
    static NOTHING: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let nothing = *NOTHING.get_or_init(|| reach(&mut || {}));
    let used = reach(&mut call) - nothing;
    println!("{isa}: {what} takes {used} bytes of stack");
    let limit = most + ASSERTIONS;
    assert!(used <= limit, "{isa}: {what} takes {used} bytes of stack, and {most} are promised");
}

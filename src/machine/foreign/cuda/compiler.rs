//! NVRTC compiles the source of kernels to a program for a device (NVRTC documentation). It needs no GPU.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use cudarc::nvrtc::sys::nvrtcProgram;

use super::CudaError;
use super::library::{Wanted, functions, load};

const LIBRARY: Wanted = Wanted { name: "libnvrtc", file: "libnvrtc.so" };

functions! {
    Table of "libnvrtc" {
        fn nvrtcCreateProgram(
            program: *mut nvrtcProgram, source: *const c_char, name: *const c_char,
            headers: c_int, texts: *const *const c_char, names: *const *const c_char,
        );
        fn nvrtcCompileProgram(program: nvrtcProgram, options: c_int, texts: *const *const c_char);
        fn nvrtcDestroyProgram(program: *mut nvrtcProgram);
        fn nvrtcGetPTXSize(program: nvrtcProgram, bytes: *mut usize);
        fn nvrtcGetPTX(program: nvrtcProgram, text: *mut c_char);
        fn nvrtcGetCUBINSize(program: nvrtcProgram, bytes: *mut usize);
        fn nvrtcGetCUBIN(program: nvrtcProgram, image: *mut c_char);
        fn nvrtcGetProgramLogSize(program: nvrtcProgram, bytes: *mut usize);
        fn nvrtcGetProgramLog(program: nvrtcProgram, text: *mut c_char);
        fn nvrtcGetNumSupportedArchs(count: *mut c_int);
        fn nvrtcGetSupportedArchs(architectures: *mut c_int);
    }
}

/// `NVRTC_ERROR_COMPILATION`.
const NOT_COMPILED: c_int = 6;

impl Table {
    #[expect(clippy::unused_self, reason = "as the table of functions calls it")]
    fn failure(&self, call: &'static str, code: c_int) -> CudaError {
        CudaError::Failed { call, code, name: "NVRTC".to_owned() }
    }
}

/// A program for the device: machine code or PTX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program(Vec<u8>);

impl Program {
    /// Makes a program from PTX, which the driver translates for its device.
    pub(crate) fn from_ptx(text: &str) -> Self {
        let mut image = text.as_bytes().to_vec();
        image.push(0);
        Self(image)
    }

    pub(super) fn image(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if it is machine code, not PTX.
    #[cfg(test)]
    pub(crate) fn is_machine_code(&self) -> bool {
        self.0.starts_with(b"\x7fELF")
    }
}

/// The compiler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compiler {
    table: &'static Table,
}

impl Compiler {
    /// Finds the compiler, once for the process. `driver_major` is the CUDA version of the driver, which decides between
    /// several compilers.
    ///
    /// # Errors
    /// No compiler can be loaded.
    pub(crate) fn open(driver_major: Option<i32>) -> Result<Self, CudaError> {
        static TABLE: OnceLock<Result<Table, CudaError>> = OnceLock::new();
        let table = TABLE.get_or_init(|| load(&LIBRARY, driver_major).map(Table::of));
        table.as_ref().map(|table| Self { table }).map_err(Clone::clone)
    }

    /// Compiles kernels for devices of a compute capability. The result is machine code if the compiler knows the device;
    /// older drivers load it as well. Otherwise the result is PTX of the nearest lower architecture.
    ///
    /// # Errors
    /// [`CudaError::NotCompiled`] with the compiler's words, or [`CudaError::NotSupported`] for a device that is too old
    /// for this compiler.
    pub(crate) fn compile(&self, source: &str, compute_capability: (i32, i32)) -> Result<Program, CudaError> {
        let wanted = compute_capability.0 * 10 + compute_capability.1;
        let known = self.architectures()?;
        let nearest = known.iter().copied().filter(|&known| known <= wanted).max();
        let nearest = nearest.ok_or_else(|| {
            CudaError::NotSupported(format!("this NVRTC compiles for no device as old as sm_{wanted}"))
        })?;
        let kind = if nearest == wanted { "sm" } else { "compute" };
        let source =
            CString::new(source).map_err(|_| CudaError::NotSupported("a kernel with a zero byte".to_owned()))?;
        let program = Handle::new(self.table, &source)?;
        program.compile(&[&format!("--gpu-architecture={kind}_{nearest}"), "--std=c++17"])?;
        if nearest == wanted { program.machine_code() } else { program.ptx() }
    }

    /// Returns the architectures that it knows, such as 90 for compute capability 9.0.
    fn architectures(&self) -> Result<Vec<c_int>, CudaError> {
        let mut count = 0;
        // SAFETY: it writes one integer.
        unsafe { self.table.nvrtcGetNumSupportedArchs(&raw mut count) }?;
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: it writes as many integers as it has told.
        unsafe { self.table.nvrtcGetSupportedArchs(known.as_mut_ptr()) }?;
        Ok(known)
    }
}

/// A program of the compiler, destroyed with its handle.
struct Handle<'a> {
    table: &'static Table,
    program: nvrtcProgram,
    _source: &'a CString,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { self.table.nvrtcDestroyProgram(&raw mut self.program) };
    }
}

impl<'a> Handle<'a> {
    fn new(table: &'static Table, source: &'a CString) -> Result<Self, CudaError> {
        let mut program = ptr::null_mut();
        let name = c"gputune.cu";
        // SAFETY: the texts end with 0 and outlive the program; no headers.
        unsafe {
            table.nvrtcCreateProgram(&raw mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null())
        }?;
        Ok(Self { table, program, _source: source })
    }

    fn compile(&self, options: &[&str]) -> Result<(), CudaError> {
        let texts: Vec<CString> = options.iter().filter_map(|option| CString::new(*option).ok()).collect();
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: as many texts as told, each ending with 0.
        let compiled = unsafe { self.table.nvrtcCompileProgram(self.program, count, pointers.as_ptr()) };
        compiled.map_err(|error| match error {
            CudaError::Failed { code: NOT_COMPILED, .. } => CudaError::NotCompiled { log: self.log() },
            other => other,
        })
    }

    fn log(&self) -> String {
        let table = self.table;
        let log = self.fetch(
            // SAFETY: it writes one number.
            |program, bytes| unsafe { table.nvrtcGetProgramLogSize(program, bytes) },
            // SAFETY: `fetch` gives a place as long as was told.
            |program, place| unsafe { table.nvrtcGetProgramLog(program, place) },
        );
        let text = String::from_utf8_lossy(&log.unwrap_or_default()).replace('\0', "");
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
    }

    fn ptx(&self) -> Result<Program, CudaError> {
        let table = self.table;
        let image = self.fetch(
            // SAFETY: it writes one number.
            |program, bytes| unsafe { table.nvrtcGetPTXSize(program, bytes) },
            // SAFETY: `fetch` gives a place as long as was told, which counts the 0 at the end.
            |program, place| unsafe { table.nvrtcGetPTX(program, place) },
        );
        image.map(Program)
    }

    fn machine_code(&self) -> Result<Program, CudaError> {
        let table = self.table;
        let image = self.fetch(
            // SAFETY: it writes one number.
            |program, bytes| unsafe { table.nvrtcGetCUBINSize(program, bytes) },
            // SAFETY: `fetch` gives a place as long as was told.
            |program, place| unsafe { table.nvrtcGetCUBIN(program, place) },
        );
        image.map(Program)
    }

    fn fetch(
        &self,
        size: impl Fn(nvrtcProgram, *mut usize) -> Result<(), CudaError>,
        write: impl Fn(nvrtcProgram, *mut c_char) -> Result<(), CudaError>,
    ) -> Result<Vec<u8>, CudaError> {
        let mut bytes = 0;
        size(self.program, &raw mut bytes)?;
        let mut place = vec![0_u8; bytes];
        write(self.program, place.as_mut_ptr().cast())?;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: &str = r#"
        extern "C" __global__ void scale(float *values, float factor, int count) {
            int at = blockIdx.x * blockDim.x + threadIdx.x;
            if (at < count) values[at] *= factor;
        }
    "#;

    /// Needs the compiler, but no GPU. Without the compiler, the test says so and checks nothing.
    #[test]
    #[expect(clippy::print_stderr, reason = "says that it was skipped")]
    fn kernels_are_compiled_for_their_device() {
        let compiler = match Compiler::open(None) {
            Ok(compiler) => compiler,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert!(compiler.table.missing().is_empty());
        let known = compiler.architectures().unwrap();
        let latest = known.iter().copied().max().unwrap();
        assert!(compiler.compile(SCALE, (9, 0)).unwrap().is_machine_code());
        let ptx = compiler.compile(SCALE, (latest / 10, latest % 10 + 1)).unwrap();
        let text = String::from_utf8(ptx.image().to_vec()).unwrap();
        assert!(text.contains(".entry scale") && text.ends_with('\0'), "{text}");
        let error = compiler.compile(SCALE, (1, 0)).unwrap_err();
        assert!(error.to_string().contains("sm_10"), "{error}");
        let error = compiler.compile("__global__ void broken(", (9, 0)).unwrap_err();
        assert!(
            matches!(&error, CudaError::NotCompiled { log } if log.contains("error") && !log.contains('\n')),
            "{error}"
        );
    }
}

//! Matrix products by cuBLASLt. Python wheels contain this library; the dynamic loader does not look there.
//!
//! The products of cudarc's safe interface need one number format, and lack fp32 without TF32. Hence its unsafe layer.

use std::collections::BTreeSet;
use std::ffi::{OsString, c_int, c_void};
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtHandle_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatrixLayout_t, cublasStatus_t, cudaDataType_t,
};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use libloading::Library;

use super::error::BLAS;
use super::{CudaError, version};
use crate::model::Precision;

/// The size of the scratch memory: 32 MiB, as NVIDIA recommends for Hopper (cuBLAS documentation,
/// `cublasSetWorkspace`).
const SCRATCH_BYTES: usize = 32 << 20;
/// The most algorithms that cuBLASLt may propose.
const MOST: usize = 8;

/// A number format, and the bytes of one value.
type Format = (cudaDataType_t, usize);

/// Returns the formats of the factors and of the result.
fn formats(precision: Precision) -> (Format, Format) {
    let (single, bf16) = ((cudaDataType_t::CUDA_R_32F, 4), (cudaDataType_t::CUDA_R_16BF, 2));
    match precision {
        Precision::Fp32 | Precision::Tf32 => (single, single),
        Precision::Bf16 => (bf16, bf16),
        Precision::Fp16 => ((cudaDataType_t::CUDA_R_16F, 2), (cudaDataType_t::CUDA_R_16F, 2)),
        Precision::Fp8 => ((cudaDataType_t::CUDA_R_8F_E4M3, 1), bf16),
    }
}

/// An object of cuBLASLt, destroyed on drop.
#[derive(Debug)]
struct Owned<T: Copy>(T, unsafe fn(T) -> Result<(), CublasError>);

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object was created once, and the function destroys this type of object.
        let _ = unsafe { self.1(self.0) };
    }
}

/// A product of two square matrices, ready to run repeatedly. The second factor is transposed, like a linear layer's
/// weights; fp8 allows no other layout. Sums have 32 bits; with fp8, they stay in the registers of the tensor cores.
#[derive(Debug)]
pub(crate) struct SquareProduct {
    stream: Arc<CudaStream>,
    handle: Owned<cublasLtHandle_t>,
    description: Owned<cublasLtMatmulDesc_t>,
    factors: Owned<cublasLtMatrixLayout_t>,
    result: Owned<cublasLtMatrixLayout_t>,
    scratch: CudaSlice<u8>,
    matrices: [CudaSlice<u8>; 3],
    /// The algorithms that cuBLASLt proposes, its favourite first.
    proposals: Vec<cublasLtMatmulHeuristicResult_t>,
}

impl SquareProduct {
    /// Prepares the product of matrices with `side` rows. Each factor repeats the bytes of its pattern.
    pub(crate) fn new(
        stream: &Arc<CudaStream>,
        precision: Precision,
        side: usize,
        patterns: [&[u8]; 2],
    ) -> Result<Self, CudaError> {
        find_blas(version()?.0)?;
        stream.context().bind_to_thread()?;
        let (of_factors, of_result) = formats(precision);
        let layout = |(format, _): Format| -> Result<_, CudaError> {
            let layout = result::create_matrix_layout(format, side as u64, side as u64, side as i64)?;
            Ok(Owned(layout, result::destroy_matrix_layout))
        };
        let cells = side * side;
        let [left, right] = patterns.map(|pattern| repeated(stream, pattern, cells * of_factors.1));
        let mut product = Self {
            stream: stream.clone(),
            handle: Owned(result::create_handle()?, result::destroy_handle),
            description: description(precision)?,
            factors: layout(of_factors)?,
            result: layout(of_result)?,
            scratch: stream.alloc_zeros(SCRATCH_BYTES)?,
            matrices: [left?, right?, stream.alloc_zeros(cells * of_result.1)?],
            proposals: Vec::new(),
        };
        product.proposals = product.proposals()?;
        Ok(product)
    }

    /// Returns the number of algorithms that cuBLASLt proposes, at least one; the first is its favourite.
    pub(crate) fn choices(&self) -> usize {
        self.proposals.len()
    }

    /// Computes the product after the work in the stream, without waiting, by an algorithm below [`Self::choices`].
    pub(crate) fn run(&mut self, choice: usize) -> Result<(), CudaError> {
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        let [left, right, out] = &mut self.matrices;
        let stream = &self.stream;
        stream.context().bind_to_thread()?;
        let [(left, _left), (right, _right), (scratch, _scratch)] =
            [&*left, &*right, &self.scratch].map(|matrix| matrix.device_ptr(stream));
        let (out, _out) = out.device_ptr_mut(stream);
        // cuBLASLt stores by columns, so it sees transposed matrices. `(a b)' = b' a'`: the factors change places.
        // SAFETY: the matrices have `side` rows and columns, as the layouts; the scratch memory is this product's.
        unsafe {
            result::matmul(
                self.handle.0,
                self.description.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                right as *const c_void,
                self.factors.0,
                left as *const c_void,
                self.factors.0,
                out as *const c_void,
                self.result.0,
                out as *mut c_void,
                self.result.0,
                &raw const self.proposals[choice].algo,
                scratch as *mut c_void,
                SCRATCH_BYTES,
                stream.cu_stream().cast(),
            )
        }?;
        Ok(())
    }

    fn proposals(&self) -> Result<Vec<cublasLtMatmulHeuristicResult_t>, CudaError> {
        let preference = Owned(result::create_matmul_pref()?, result::destroy_matmul_pref);
        let scratch_bytes = SCRATCH_BYTES as u64;
        // SAFETY: the struct holds only numbers, for which 0 is valid.
        let mut proposals = vec![unsafe { mem::zeroed::<cublasLtMatmulHeuristicResult_t>() }; MOST];
        let mut found = 0;
        // SAFETY: all objects are alive, the attribute is a `uint64_t`, and the vector has room for `MOST` proposals.
        unsafe {
            result::set_matmul_pref_attribute(
                preference.0,
                cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const scratch_bytes).cast(),
                size_of::<u64>(),
            )?;
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle.0,
                self.description.0,
                self.factors.0,
                self.factors.0,
                self.result.0,
                self.result.0,
                preference.0,
                MOST as c_int,
                proposals.as_mut_ptr(),
                &raw mut found,
            )
            .result()?;
        }
        proposals.truncate(usize::try_from(found).unwrap_or(0));
        proposals.retain(|proposal| proposal.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        if proposals.is_empty() {
            return Err(CublasError(cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED).into());
        }
        Ok(proposals)
    }
}

/// Allocates memory and fills it with repetitions of a pattern.
fn repeated(stream: &Arc<CudaStream>, pattern: &[u8], bytes: usize) -> Result<CudaSlice<u8>, CudaError> {
    let mut buffer = stream.alloc_zeros(bytes)?;
    let first = pattern.len().min(bytes);
    let (mut start, mut rest) = buffer.split_at_mut(first);
    stream.memcpy_htod(&pattern[..first], &mut start)?;
    let mut at = 0;
    while at < rest.len() {
        let end = rest.len().min(at + first);
        stream.memcpy_dtod(&start.slice(..end - at), &mut rest.slice_mut(at..end))?;
        at = end;
    }
    stream.synchronize()?;
    Ok(buffer)
}

fn description(precision: Precision) -> Result<Owned<cublasLtMatmulDesc_t>, CudaError> {
    let compute = match precision {
        Precision::Tf32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => Compute::CUBLAS_COMPUTE_32F,
    };
    let made = result::create_matmul_desc(compute, cudaDataType_t::CUDA_R_32F)?;
    let made = Owned(made, result::destroy_matmul_desc);
    // 1 is `CUBLAS_OP_T`. `run` passes the right factor as cuBLASLt's A.
    let transposed = 1_i32;
    // SAFETY: the attribute's value is of this length.
    unsafe {
        result::set_matmul_desc_attribute(
            made.0,
            Attribute::CUBLASLT_MATMUL_DESC_TRANSA,
            (&raw const transposed).cast(),
            size_of::<i32>(),
        )?;
    }
    if precision == Precision::Fp8 {
        let fast = 1_i8;
        // SAFETY: as above.
        unsafe {
            result::set_matmul_desc_attribute(
                made.0,
                Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                (&raw const fast).cast(),
                size_of::<i8>(),
            )?;
        }
    }
    Ok(made)
}

/// The major versions of the library that are searched for; the interface used here is the same in both.
const MAJORS: [i32; 2] = [13, 12];

/// Loads the first cuBLASLt that works, once for the process. Versions that the driver supports come first, then later
/// versions before earlier ones. Each version is looked for by the loader, then in [`search_folders`].
pub(crate) fn find_blas(driver_major: i32) -> Result<(), CudaError> {
    static IS_PRESENT: OnceLock<bool> = OnceLock::new();
    let is_present = *IS_PRESENT.get_or_init(|| load(driver_major));
    is_present.then_some(()).ok_or(CudaError::NotFound(BLAS))
}

fn load(driver_major: i32) -> bool {
    let mut majors = MAJORS;
    majors.sort_by_key(|&major| major > driver_major);
    let folders = search_folders();
    let files = majors.map(|major| format!("{BLAS}.so.{major}"));
    let mut places = files.iter().flat_map(|file| {
        let in_folders = folders.iter().map(move |folder| folder.join(file)).filter(|path| path.is_file());
        std::iter::once(PathBuf::from(file)).chain(in_folders)
    });
    // SAFETY: the initialisers of the library have no preconditions.
    let library = places.find_map(|path| unsafe { Library::new(path) }.ok());
    // The library stays loaded: when cudarc asks for its name, the loader returns this copy, from any folder.
    let library = library.map(|library| Box::leak(Box::new(library)));
    // SAFETY: as above.
    library.is_some() && unsafe { cudarc::cublaslt::sys::is_culib_present() }
}

/// Returns the folders for libraries that the loader does not find: `CUDA_HOME` and `CUDA_PATH`, Python wheels, and
/// `/usr/local/cuda`. The wheels are in the Python environments of `VIRTUAL_ENV`, `CONDA_PREFIX` and `PATH`, installed
/// by pip for the user, or next to the system's Python.
fn search_folders() -> Vec<PathBuf> {
    let mut folders = candidates(&|name| std::env::var_os(name));
    let mut seen = BTreeSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

fn candidates(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let all = |names: [&str; 2]| names.into_iter().filter_map(folder).collect::<Vec<PathBuf>>();
    let mut folders: Vec<PathBuf> = all(["CUDA_HOME", "CUDA_PATH"]).into_iter().flat_map(toolkit).collect();
    let path = variable("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute() && folder.join("python3").exists())
        .filter_map(|folder| folder.parent().map(Path::to_owned));
    for prefix in all(["VIRTUAL_ENV", "CONDA_PREFIX"]).into_iter().chain(on_path) {
        folders.extend(wheels(&prefix));
        // Debian's Python in /usr/bin installs to /usr/local (its patch of `sysconfig`, scheme `posix_local`).
        folders.extend(wheels(&prefix.join("local")));
        folders.push(prefix.join("lib"));
    }
    // `pip --user`: PEP 370.
    let user = folder("PYTHONUSERBASE").or_else(|| folder("HOME").map(|home| home.join(".local")));
    folders.extend(user.iter().flat_map(|base| wheels(base)));
    folders.extend(wheels(Path::new("/usr/local")));
    folders.extend(toolkit(PathBuf::from("/usr/local/cuda")));
    folders
}

fn toolkit(home: PathBuf) -> [PathBuf; 3] {
    [home.join("lib64"), home.join("lib"), home.join(format!("targets/{}-linux/lib", std::env::consts::ARCH))]
}

/// Returns the library folders of the wheels in a Python environment, also below Debian's `dist-packages`.
fn wheels(prefix: &Path) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| {
        let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.sort();
        paths
    };
    let pythons = ["lib", "lib64"].into_iter().flat_map(|lib| entries(prefix.join(lib)));
    let is_python = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let packages = pythons.filter(is_python).flat_map(|lib| [lib.join("site-packages"), lib.join("dist-packages")]);
    packages.flat_map(|folder| entries(folder.join("nvidia"))).map(|wheel| wheel.join("lib")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_of_both_layouts_are_found() {
        let prefix = tempfile::tempdir().unwrap();
        let packages = prefix.path().join("lib/python3.12/site-packages/nvidia");
        for wheel in ["cublas/lib", "cu13/lib", "cuda_nvrtc/lib"] {
            fs::create_dir_all(packages.join(wheel)).unwrap();
        }
        let found = wheels(prefix.path());
        assert_eq!(found, ["cu13/lib", "cublas/lib", "cuda_nvrtc/lib"].map(|wheel| packages.join(wheel)));
        assert!(wheels(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn wheels_are_found_wherever_pip_puts_them() {
        let root = tempfile::tempdir().unwrap();
        let usr = root.path().join("usr");
        fs::create_dir_all(usr.join("bin")).unwrap();
        fs::write(usr.join("bin/python3"), "").unwrap();
        let below = |path: &str| {
            let folder = root.path().join(path).join("nvidia/cu13/lib");
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let wheels = [
            below("venv/lib/python3.12/site-packages"),
            below("usr/lib/python3/dist-packages"),
            below("usr/local/lib/python3.12/dist-packages"),
            below("home/.local/lib/python3.12/site-packages"),
        ];
        let found = candidates(&|name| match name {
            "VIRTUAL_ENV" => Some(root.path().join("venv").into()),
            "PATH" => Some(usr.join("bin").into()),
            "HOME" => Some(root.path().join("home").into()),
            _ => None,
        });
        let places: Vec<_> = wheels.iter().map(|wheel| found.iter().position(|folder| folder == wheel)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {found:?}");
        let other = below("base/lib/python3.12/site-packages");
        let found = candidates(&|name| (name == "PYTHONUSERBASE").then(|| root.path().join("base").into()));
        assert!(found.contains(&other), "{found:?}");
    }
}

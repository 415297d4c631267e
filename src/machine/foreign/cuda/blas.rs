//! Matrix products by cuBLASLt, for matrices stored row by row.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayout_t, cudaDataType_t,
};

use super::blas_table::{BlasTable, Proposal};
use super::{Buffer, CudaError, Driver, Part, Stream};
use crate::model::Precision;

/// A number format in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// 32 bits.
    F32,
    /// 16 bits.
    F16,
    /// 16 bits with the exponent range of 32 bits.
    Bf16,
    /// 8 bits, E4M3.
    F8,
}

impl Element {
    /// Returns the bytes of one number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::F8 => 1,
        }
    }

    /// Returns the format in which the factors of a product in this precision are stored.
    pub(crate) fn of(precision: Precision) -> Self {
        match precision {
            Precision::Fp32 | Precision::Tf32 => Self::F32,
            Precision::Bf16 => Self::Bf16,
            Precision::Fp16 => Self::F16,
            Precision::Fp8 => Self::F8,
        }
    }

    fn code(self) -> c_int {
        let kind = match self {
            Self::F32 => cudaDataType_t::CUDA_R_32F,
            Self::F16 => cudaDataType_t::CUDA_R_16F,
            Self::Bf16 => cudaDataType_t::CUDA_R_16BF,
            Self::F8 => cudaDataType_t::CUDA_R_8F_E4M3,
        };
        kind as c_int
    }
}

/// The shape of a product: `rows x inner` times `inner x columns`. A transposed factor is stored the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProductShape {
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// The length of the sums.
    pub inner: usize,
    /// The left factor is stored as `inner x rows`.
    pub left_transposed: bool,
    /// The right factor is stored as `columns x inner`, as the weights of a linear layer are.
    pub right_transposed: bool,
}

impl ProductShape {
    /// Returns the floating-point operations: one multiplication and one addition for each term.
    pub(crate) fn operations(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53 each")]
        let [rows, columns, inner] = [self.rows, self.columns, self.inner].map(|side| side as f64);
        2.0 * rows * columns * inner
    }

    fn sizes(&self, factors: Element, result: Element) -> Result<[usize; 3], CudaError> {
        let bytes = |a: usize, b: usize, element: Element| a.checked_mul(b)?.checked_mul(element.bytes());
        let sizes = || {
            Some([
                bytes(self.rows, self.inner, factors)?,
                bytes(self.inner, self.columns, factors)?,
                bytes(self.rows, self.columns, result)?,
            ])
        };
        sizes().ok_or_else(|| CudaError::BadSize("a matrix is too large to count its bytes".to_owned()))
    }
}

/// cuBLASLt on a stream, with 32 MiB of scratch memory, as NVIDIA recommends for Hopper (cuBLAS documentation,
/// `cublasSetWorkspace`).
#[derive(Debug, Clone)]
pub(crate) struct Blas(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    table: &'static BlasTable,
    handle: cublasLtHandle_t,
    scratch: Buffer,
    stream: Stream,
}

// SAFETY: cuBLASLt's handle may be used from any thread (cuBLAS documentation, "Thread safety").
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.stream.gpu().enter().is_ok() {
            // SAFETY: created once; products hold it alive.
            let _ = unsafe { self.table.cublasLtDestroy(self.handle) };
        }
    }
}

impl Blas {
    /// Finds and loads the library. `driver_major` is the driver's CUDA version, which decides between several libraries.
    ///
    /// # Errors
    /// No library can be loaded.
    pub(crate) fn find(driver_major: Option<i32>) -> Result<(), CudaError> {
        BlasTable::open(driver_major).map(drop)
    }

    /// Finds cuBLASLt and makes it ready for the stream's device.
    ///
    /// # Errors
    /// The library is missing, or does not work with the driver.
    pub(crate) fn new(stream: &Stream) -> Result<Self, CudaError> {
        const SCRATCH: usize = 32 << 20;
        let driver_major = Driver::open()?.version()?.major;
        let table = BlasTable::open(Some(driver_major))?;
        stream.gpu().enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: it writes one handle, destroyed once.
        unsafe { table.cublasLtCreate(&raw mut handle) }?;
        let scratch = Buffer::new(stream.gpu(), SCRATCH).inspect_err(|_| {
            // SAFETY: created above, and nobody has it.
            let _ = unsafe { table.cublasLtDestroy(handle) };
        })?;
        Ok(Self(Arc::new(Handle { table, handle, scratch, stream: stream.clone() })))
    }

    /// Prepares a product. Sums are kept in 32 bits. For [`Precision::Fp8`], they are kept in the shorter registers of the
    /// tensor cores, as is usual in forward passes, and the result cannot be fp8. fp8 requires an untransposed left factor
    /// and a transposed right factor, so that both inner sides are contiguous. It also requires sides that are multiples of
    /// 16.
    ///
    /// # Errors
    /// [`CudaError::NotSupported`] if the device cannot compute it.
    pub(crate) fn product(
        &self,
        shape: ProductShape,
        precision: Precision,
        result: Element,
    ) -> Result<MatrixProduct, CudaError> {
        let factors = Element::of(precision);
        let bytes = shape.sizes(factors, result)?;
        self.0.stream.gpu().enter()?;
        let table = self.0.table;
        let description = Description::new(table, shape, precision)?;
        let ProductShape { rows, columns, inner, left_transposed, right_transposed } = shape;
        let right = if right_transposed { [inner, columns] } else { [columns, inner] };
        let left = if left_transposed { [rows, inner] } else { [inner, rows] };
        let mut product = MatrixProduct {
            blas: self.clone(),
            description,
            layouts: [
                Layout::new(table, factors, right)?,
                Layout::new(table, factors, left)?,
                Layout::new(table, result, [columns, rows])?,
            ],
            bytes,
            proposals: Vec::new(),
        };
        product.proposals = product.proposals()?;
        Ok(product)
    }
}

/// A product that is ready to run repeatedly.
#[derive(Debug)]
pub(crate) struct MatrixProduct {
    blas: Blas,
    description: Description,
    /// The layouts of the right factor, the left factor and the result. cuBLASLt stores by columns, so the same bytes
    /// are the transposed matrices, and `(a b)' = b' a'`.
    layouts: [Layout; 3],
    /// The lengths of the left factor, the right factor and the result.
    bytes: [usize; 3],
    proposals: Vec<Proposal>,
}

// SAFETY: handles may be used from any thread; nothing is changed after preparation.
unsafe impl Send for MatrixProduct {}

impl MatrixProduct {
    /// Returns the number of algorithms that cuBLASLt proposes, at least one; the first is its favourite.
    pub(crate) fn choices(&self) -> usize {
        self.proposals.len()
    }

    /// Computes `result = alpha * left * right + beta * result` after the work already in the stream, without waiting.
    /// `choice` is the number of an algorithm below [`Self::choices`].
    ///
    /// # Errors
    /// A matrix is shorter than its shape, or the device fails.
    pub(crate) fn run(
        &self,
        choice: usize,
        (left, right, result): (Part<'_>, Part<'_>, Part<'_>),
        (alpha, beta): (f32, f32),
    ) -> Result<(), CudaError> {
        let [left_bytes, right_bytes, result_bytes] = self.bytes;
        left.holds(left_bytes, "the left factor")?;
        right.holds(right_bytes, "the right factor")?;
        result.holds(result_bytes, "the result")?;
        let none = || CudaError::BadSize(format!("there is no algorithm {choice}"));
        let proposal = self.proposals.get(choice).ok_or_else(none)?;
        let Handle { table, handle, scratch, stream } = &*self.blas.0;
        stream.gpu().enter()?;
        let [right_layout, left_layout, result_layout] = [0, 1, 2].map(|at| self.layouts[at].layout);
        let pointer = |part: Part<'_>| part.address() as *mut c_void;
        // SAFETY: the matrices are as long as their layouts; the scratch memory is this stream's alone.
        unsafe {
            table.cublasLtMatmul(
                *handle,
                self.description.description,
                (&raw const alpha).cast(),
                pointer(right),
                right_layout,
                pointer(left),
                left_layout,
                (&raw const beta).cast(),
                pointer(result),
                result_layout,
                pointer(result),
                result_layout,
                &raw const proposal.algorithm,
                pointer(scratch.all()),
                scratch.bytes(),
                stream.handle(),
            )
        }
    }

    fn proposals(&self) -> Result<Vec<Proposal>, CudaError> {
        const MOST: usize = 8;
        let Handle { table, handle, scratch, .. } = &*self.blas.0;
        let preference = Preference::new(table, scratch.bytes())?;
        let [right, left, result] = [0, 1, 2].map(|at| self.layouts[at].layout);
        // SAFETY: a struct of numbers, for which 0 is a value.
        let mut proposals = vec![unsafe { std::mem::zeroed::<Proposal>() }; MOST];
        let mut found = 0;
        // SAFETY: all handles are alive; it writes at most as many proposals as there are places.
        unsafe {
            table.cublasLtMatmulAlgoGetHeuristic(
                *handle,
                self.description.description,
                right,
                left,
                result,
                result,
                preference.preference,
                MOST as c_int,
                proposals.as_mut_ptr(),
                &raw mut found,
            )
        }?;
        proposals.truncate(usize::try_from(found).unwrap_or(0));
        proposals.retain(|proposal| proposal.state == 0);
        if proposals.is_empty() {
            return Err(CudaError::NotSupported("cuBLASLt has no kernel for this product on this device".to_owned()));
        }
        Ok(proposals)
    }
}

#[derive(Debug)]
struct Layout {
    table: &'static BlasTable,
    layout: cublasLtMatrixLayout_t,
}

impl Layout {
    /// Makes the layout of a matrix stored column by column.
    fn new(table: &'static BlasTable, element: Element, [rows, columns]: [usize; 2]) -> Result<Self, CudaError> {
        let mut layout = ptr::null_mut();
        let leading = i64::try_from(rows).map_err(|_| CudaError::BadSize(format!("{rows} rows are too many")))?;
        // SAFETY: it writes one handle, destroyed once.
        unsafe {
            table.cublasLtMatrixLayoutCreate(&raw mut layout, element.code(), rows as u64, columns as u64, leading)
        }?;
        Ok(Self { table, layout })
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: created once.
        let _ = unsafe { self.table.cublasLtMatrixLayoutDestroy(self.layout) };
    }
}

#[derive(Debug)]
struct Description {
    table: &'static BlasTable,
    description: cublasLtMatmulDesc_t,
}

impl Description {
    fn new(table: &'static BlasTable, shape: ProductShape, precision: Precision) -> Result<Self, CudaError> {
        let compute = match precision {
            Precision::Tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let mut description = ptr::null_mut();
        // SAFETY: it writes one handle, destroyed once.
        unsafe { table.cublasLtMatmulDescCreate(&raw mut description, compute as c_int, Element::F32.code()) }?;
        let made = Self { table, description };
        // `cublasOperation_t`: 0 means untransposed, 1 transposed. The right factor is cuBLASLt's first.
        made.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(shape.right_transposed))?;
        made.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(shape.left_transposed))?;
        if precision == Precision::Fp8 {
            made.set(Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, 1_i8)?;
        }
        Ok(made)
    }

    fn set<T: Copy>(&self, attribute: Attribute, value: T) -> Result<(), CudaError> {
        // SAFETY: the attribute's value is of this length.
        unsafe {
            self.table.cublasLtMatmulDescSetAttribute(
                self.description,
                attribute as c_int,
                (&raw const value).cast(),
                size_of::<T>(),
            )
        }
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: created once.
        let _ = unsafe { self.table.cublasLtMatmulDescDestroy(self.description) };
    }
}

struct Preference {
    table: &'static BlasTable,
    preference: cudarc::cublaslt::sys::cublasLtMatmulPreference_t,
}

impl Preference {
    fn new(table: &'static BlasTable, scratch_bytes: usize) -> Result<Self, CudaError> {
        let mut preference = ptr::null_mut();
        // SAFETY: it writes one handle, destroyed once.
        unsafe { table.cublasLtMatmulPreferenceCreate(&raw mut preference) }?;
        let made = Self { table, preference };
        let attribute = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as c_int;
        let bytes = scratch_bytes as u64;
        // SAFETY: the attribute's value is a `uint64_t`.
        unsafe {
            table.cublasLtMatmulPreferenceSetAttribute(
                preference,
                attribute,
                (&raw const bytes).cast(),
                size_of::<u64>(),
            )
        }?;
        Ok(made)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created once.
        let _ = unsafe { self.table.cublasLtMatmulPreferenceDestroy(self.preference) };
    }
}

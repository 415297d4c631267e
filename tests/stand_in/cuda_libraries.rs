//! The library that tests load as `libcublasLt.so.13`, with the stand-in for the driver. Matrix products check only shapes.
#![expect(unsafe_code, reason = "it has the C interface of the library")]
#![expect(clippy::missing_safety_doc, reason = "as the library's documentation has it")]
#![expect(missing_docs, reason = "as the library's documentation has it")]

use std::ffi::{c_int, c_void};
use std::ptr;

const INVALID_VALUE: c_int = 7;
/// `CUBLASLT_MATMUL_DESC_TRANSA` and `CUBLASLT_MATMUL_DESC_TRANSB`.
const TRANSPOSED: [c_int; 2] = [3, 4];

macro_rules! succeed {
    ($($name:ident($($kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($(_: $kind),*) -> c_int {
                0
            }
        )*
    };
}

succeed! {
    cublasLtDestroy(*mut c_void);
    cublasLtMatmulPreferenceDestroy(*mut c_void);
    cublasLtMatmulPreferenceSetAttribute(*mut c_void, c_int, *const c_void, usize);
}

macro_rules! give_handles {
    ($($name:ident($($kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(handle: *mut *mut c_void, $(_: $kind),*) -> c_int {
                // SAFETY: the caller gives a place; the handle is never dereferenced.
                unsafe { *handle = ptr::dangling_mut::<u64>().cast() };
                0
            }
        )*
    };
}

give_handles! {
    cublasLtCreate();
    cublasLtMatmulPreferenceCreate();
}

/// A matrix stored column by column.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    rows: u64,
    columns: u64,
    leading: i64,
}

/// The transposed factors.
#[derive(Debug, Clone, Copy, Default)]
pub struct Description {
    transposed: [bool; 2],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut *mut Layout,
    _element: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { *layout = Box::into_raw(Box::new(Layout { rows, columns, leading })) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutDestroy(layout: *mut Layout) -> c_int {
    // SAFETY: made above, destroyed once.
    drop(unsafe { Box::from_raw(layout) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescCreate(
    description: *mut *mut Description,
    _compute: c_int,
    _scale: c_int,
) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { *description = Box::into_raw(Box::default()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    description: *mut Description,
    attribute: c_int,
    value: *const c_int,
    bytes: usize,
) -> c_int {
    let Some(factor) = TRANSPOSED.iter().position(|&known| known == attribute) else { return 0 };
    if bytes != size_of::<c_int>() {
        return INVALID_VALUE;
    }
    // SAFETY: made above, and the value is of that length.
    unsafe { (*description).transposed[factor] = *value != 0 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescDestroy(description: *mut Description) -> c_int {
    // SAFETY: made above, destroyed once.
    drop(unsafe { Box::from_raw(description) });
    0
}

/// Returns true if the shapes make a product: op(a) of m rows and k columns, op(b) of k and n, c of m and n.
fn fits(description: Description, a: Layout, b: Layout, c: Layout) -> bool {
    let sides = |layout: Layout, transposed: bool| {
        if transposed { (layout.columns, layout.rows) } else { (layout.rows, layout.columns) }
    };
    let (left, right) = (sides(a, description.transposed[0]), sides(b, description.transposed[1]));
    let is_dense = |layout: Layout| u64::try_from(layout.leading) == Ok(layout.rows);
    left.1 == right.0 && (left.0, right.1) == (c.rows, c.columns) && [a, b, c].into_iter().all(is_dense)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *mut c_void,
    description: *const Description,
    a: *const Layout,
    b: *const Layout,
    c: *const Layout,
    _d: *const Layout,
    _preference: *mut c_void,
    _wanted: c_int,
    _proposals: *mut c_void,
    found: *mut c_int,
) -> c_int {
    // SAFETY: all of them were made above. The caller's proposals are zero, which is a success.
    let is_product = unsafe { fits(*description, *a, *b, *c) };
    // SAFETY: the caller gives a place.
    unsafe { *found = c_int::from(is_product) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmul(
    _handle: *mut c_void,
    _description: *const Description,
    _alpha: *const c_void,
    _a: *const c_void,
    _a_layout: *const Layout,
    _b: *const c_void,
    _b_layout: *const Layout,
    _beta: *const c_void,
    _c: *const c_void,
    _c_layout: *const Layout,
    _d: *mut c_void,
    _d_layout: *const Layout,
    _algorithm: *const c_void,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    0
}

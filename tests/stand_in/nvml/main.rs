//! A stand-in for NVIDIA's management library, for machines without a GPU: it says what a script tells it to.
//!
//! The script is a file of JSON, named by `STAND_IN_NVML`:
//!
//! ```json
//! { "driver": "580.95.05",
//!   "gpus": [ { "uuid": "GPU-a1", "name": "NVIDIA H200", "state": { "memory_total": 1e11, "sm": 62 },
//!               "changes": [ { "after": 1.5, "set": { "sm": 10 } },
//!                            { "when": "/tmp/flag", "set": { "errors": { "*": 15 } } } ] } ] }
//! ```
//!
//! A change holds from a time since the library was opened, or from the moment when a file appears. Counted numbers, such as
//! energy, are the sum of the state over time. A name that the state lacks is not supported. `errors` gives the code that a
//! function returns, or all functions with `*`; `hang` lists functions that do not return.
#![expect(unsafe_code, reason = "it is called through the C interface")]

mod calls;
mod gpm;
mod layout;
mod script;

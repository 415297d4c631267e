//! Finds the fastest settings of a training step on a GPU, with cudarc.
//!
//! Run it with `cargo run --release --example cuda_step`; it needs an NVIDIA driver and NVRTC. The step fits a linear model:
//! it copies a batch to the GPU, computes the errors of all samples, and moves the weights against the gradient.
#![expect(unsafe_code, reason = "neither a kernel's arguments nor a library's symbols are checked")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use gputune::model::Event;
use gputune::{Budget, Parameter, Settings, Space, Step, StepError, TrainingStep, Tuner};

const FEATURES: usize = 4096;
const RATE: f32 = 0.05;

const SOURCE: &str = r#"
// One thread for each sample: its error.
extern "C" __global__ void measure(const float *x, const float *y, const float *w, float *e, unsigned n, unsigned features) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (unsigned j = 0; j < features; j++) sum += x[(size_t)i * features + j] * w[j];
    e[i] = sum - y[i];
}

// One thread for each weight: one step against the gradient of the mean squared error.
extern "C" __global__ void descend(const float *x, const float *e, float *w, unsigned n, unsigned features, float rate) {
    unsigned j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= features) return;
    float sum = 0.0f;
    for (unsigned i = 0; i < n; i++) sum += x[(size_t)i * features + j] * e[i];
    w[j] -= rate * sum / n;
}
"#;

/// The buffers for one config.
struct Buffers {
    /// The batch on the host: inputs, then wanted outputs.
    batch: (Vec<f32>, Vec<f32>),
    inputs: CudaSlice<f32>,
    wanted: CudaSlice<f32>,
    weights: CudaSlice<f32>,
    errors: CudaSlice<f32>,
}

/// A linear model on the first GPU.
struct LinearModel {
    stream: Arc<CudaStream>,
    measure: CudaFunction,
    descend: CudaFunction,
    buffers: Option<Buffers>,
}

impl LinearModel {
    fn new() -> Result<Self, Box<dyn Error>> {
        // cudarc panics if a library is missing, so ask first.
        // SAFETY: the initialisers of NVIDIA's libraries have no preconditions.
        let (driver, compiler) =
            unsafe { (cudarc::driver::sys::is_culib_present(), cudarc::nvrtc::sys::is_culib_present()) };
        if !driver {
            return Err("no CUDA driver was found; install the NVIDIA driver".into());
        }
        if CudaContext::device_count().is_ok_and(|count| count == 0) {
            return Err("the CUDA driver shows no GPU".into());
        }
        let context = CudaContext::new(0).map_err(|error| format!("the first GPU cannot be used: {error}"))?;
        if !compiler {
            return Err("libnvrtc was not found; install the CUDA toolkit".into());
        }
        let module = context.load_module(cudarc::nvrtc::compile_ptx(SOURCE)?)?;
        Ok(Self {
            stream: context.default_stream(),
            measure: module.load_function("measure")?,
            descend: module.load_function("descend")?,
            buffers: None,
        })
    }

    fn allocate(&self, samples: usize) -> Result<Buffers, DriverError> {
        let wanted = (0..samples).map(|sample| (sample % 7) as f32).collect();
        let inputs = (0..samples * FEATURES).map(|cell| (cell % 11) as f32 / FEATURES as f32).collect();
        Ok(Buffers {
            batch: (inputs, wanted),
            inputs: self.stream.alloc_zeros(samples * FEATURES)?,
            wanted: self.stream.alloc_zeros(samples)?,
            weights: self.stream.alloc_zeros(FEATURES)?,
            errors: self.stream.alloc_zeros(samples)?,
        })
    }

    /// Trains one batch, and returns the mean squared error and the seconds of the copy to the GPU.
    fn train(&mut self, threads: u32) -> Result<(f64, Duration), DriverError> {
        let Self { stream, measure, descend, buffers: Some(buffers) } = self else { return Ok((0.0, Duration::ZERO)) };
        let Buffers { batch, inputs, wanted, weights, errors } = buffers;
        let start = Instant::now();
        stream.memcpy_htod(&batch.0, inputs)?;
        stream.memcpy_htod(&batch.1, wanted)?;
        let copied = start.elapsed();
        let (samples, features) = (batch.1.len() as u32, FEATURES as u32);
        let grid = |items: u32| LaunchConfig {
            grid_dim: (items.div_ceil(threads), 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = stream.launch_builder(measure);
        launch.arg(&*inputs).arg(&*wanted).arg(&*weights).arg(&mut *errors).arg(&samples).arg(&features);
        // SAFETY: these are the parameters of `measure`, and the buffers have room for `samples` and `features`.
        unsafe { launch.launch(grid(samples)) }?;
        let mut launch = stream.launch_builder(descend);
        launch.arg(&*inputs).arg(&*errors).arg(&mut *weights).arg(&samples).arg(&features).arg(&RATE);
        // SAFETY: as above, for `descend`.
        unsafe { launch.launch(grid(features)) }?;
        let errors = stream.clone_dtoh(errors)?;
        stream.synchronize()?;
        let squares: f64 = errors.iter().map(|&error| f64::from(error).powi(2)).sum();
        Ok((squares / errors.len() as f64, copied))
    }
}

impl TrainingStep for LinearModel {
    fn prepare(&mut self, settings: &Settings) -> Result<(), StepError> {
        let samples = settings.integer("batch_size").unwrap_or(256);
        self.buffers = Some(self.allocate(samples.unsigned_abs() as usize).map_err(failed)?);
        Ok(())
    }

    fn step(&mut self, settings: &Settings) -> Result<Step, StepError> {
        let threads = settings.integer("threads").unwrap_or(256).unsigned_abs() as u32;
        let (loss, copied) = self.train(threads).map_err(failed)?;
        let (free, total) = self.stream.context().mem_get_info().map_err(failed)?;
        let samples = self.buffers.as_ref().map_or(0, |buffers| buffers.batch.1.len());
        Ok(Step::new(samples as u64)
            .loss(loss)
            .memory((total - free) as u64, Some(total as u64))
            .phase("data_wait", copied))
    }

    fn release(&mut self) {
        self.buffers = None;
    }
}

fn failed(error: DriverError) -> StepError {
    match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => StepError::OutOfMemory(error.to_string()),
        _ => StepError::Failed(Box::new(error)),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = LinearModel::new().unwrap_or_else(|error| {
        eprintln!("cuda_step cannot run: {error}");
        std::process::exit(1)
    });
    let space = Space::new([
        Parameter::powers_of_two("batch_size", 256, 16384),
        Parameter::values("threads", [64, 128, 256, 512]),
    ])?;
    let budget = Budget { time: Duration::from_secs(15), ..Budget::default() };
    let study = Tuner::new(space, model).measure_time(Duration::from_millis(700)).budget(budget).run(|event| {
        if let Event::Finished { trial, settings, .. } = event {
            let rate = trial.outcome.measurement().and_then(|measured| measured.metric("throughput"));
            println!("{}: {:.0} samples/s", settings.line(), rate.unwrap_or(f64::NAN));
        }
    })?;
    let best = study.best().ok_or("no settings could be measured")?;
    println!("best: {}", study.settings(&best.winner.config).line());
    Ok(())
}

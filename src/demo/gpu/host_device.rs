//! A device for tests: the kernels compiled as C and run on the host, by a program that follows commands.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use super::super::batch::Batch;
use super::super::error::DemoError;
use super::super::scalar::{Scalar, Storage};
use super::device::{Argument, Device, Kernel, Mark};
use super::source::{KERNEL_SOURCE, storage_source};
use crate::machine::cuda::ProductShape;

/// Sanitizers find kernels that access memory out of bounds. Not every compiler has sanitizers.
const SANITIZERS: [&[&str]; 2] = [&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], &[]];

/// The program and the pipes to it.
pub(super) struct HostDevice {
    child: Child,
    pipes: Mutex<Pipes>,
}

struct Pipes {
    orders: ChildStdin,
    answers: ChildStdout,
    memories: u64,
    marks: [Option<Instant>; Mark::COUNT],
}

impl HostDevice {
    /// Compiles the kernels for this storage and starts them. Prints a message if no C compiler exists.
    pub(super) fn start(folder: &Path, storage: Storage) -> Option<Self> {
        let program = compile(folder, storage)?;
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let pipes = Pipes { orders, answers, memories: 0, marks: [None; Mark::COUNT] };
        Some(Self { child, pipes: Mutex::new(pipes) })
    }

    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap()
    }
}

impl Drop for HostDevice {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
fn compile(folder: &Path, storage: Storage) -> Option<PathBuf> {
    let (source, program) = (folder.join(format!("{storage:?}.c")), folder.join(format!("{storage:?}")));
    let text = include_str!("host_device.c")
        .replace("\nSTORAGE\n", storage_source(storage))
        .replace("\nKERNELS\n", KERNEL_SOURCE);
    fs::write(&source, text).unwrap();
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut refused = String::new();
    for sanitizers in SANITIZERS {
        let mut command = Command::new(&compiler);
        command.args(["-x", "c", "-std=gnu11", "-O1", "-Wall", "-Werror", "-Wno-unused-function"]).args(sanitizers);
        let Ok(output) = command.arg(&source).arg("-o").arg(&program).arg("-lm").output() else {
            eprintln!("NOT RUN: there is no C compiler");
            return None;
        };
        if output.status.success() {
            return Some(program);
        }
        refused = String::from_utf8_lossy(&output.stderr).into_owned();
    }
    panic!("{refused}");
}

impl Pipes {
    fn order(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.orders.write_all(&number.to_ne_bytes()).unwrap();
        }
    }

    fn memory(&mut self, bytes: usize) -> u64 {
        self.order(&[u64::from(b'a'), bytes as u64]);
        self.memories += 1;
        self.memories - 1
    }

    fn write(&mut self, memory: u64, bytes: &[u8]) {
        self.order(&[u64::from(b'w'), memory, bytes.len() as u64]);
        self.orders.write_all(bytes).unwrap();
    }

    fn read(&mut self, memory: u64, bytes: &mut [u8]) {
        self.order(&[u64::from(b'r'), memory, bytes.len() as u64]);
        self.orders.flush().unwrap();
        self.answers.read_exact(bytes).unwrap();
    }
}

/// The memories of pixels and labels.
pub(super) struct HostSlot([u64; 2]);

impl Device for HostDevice {
    type Memory = u64;
    type Product = ProductShape;
    type Slot = HostSlot;

    fn memory(&self, bytes: usize) -> Result<Option<u64>, DemoError> {
        Ok(Some(self.pipes().memory(bytes)))
    }

    fn write(&self, bytes: &[u8], to: &u64) -> Result<(), DemoError> {
        self.pipes().write(*to, bytes);
        Ok(())
    }

    fn read(&self, from: &u64, numbers: &mut [f32]) -> Result<(), DemoError> {
        let mut bytes = vec![0; size_of_val(numbers)];
        self.pipes().read(*from, &mut bytes);
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(4)) {
            *number = f32::from_ne_bytes(bytes.try_into().unwrap());
        }
        Ok(())
    }

    fn product(&self, shape: ProductShape) -> Result<ProductShape, DemoError> {
        Ok(shape)
    }

    fn multiply(
        &self,
        product: &ProductShape,
        (left, right): (&u64, &u64),
        result: &u64,
        is_added: bool,
    ) -> Result<(), DemoError> {
        let ProductShape { rows, columns, inner, left_transposed, right_transposed } = *product;
        // Memory stored by rows is the transposed matrix stored by columns, and (a b)' = b' a'.
        let sizes = [columns, rows, inner].map(|size| size as u64);
        let flags = [right_transposed, left_transposed, is_added].map(u64::from);
        self.pipes().order(&[&[u64::from(b'm')], &sizes[..], &flags, &[*right, *left, *result]].concat());
        Ok(())
    }

    fn launch(&self, kernel: Kernel, threads: usize, arguments: &[Argument<'_, u64>]) -> Result<(), DemoError> {
        let mut order = vec![u64::from(b'k'), kernel as u64, threads as u64, arguments.len() as u64];
        for argument in arguments {
            order.extend(match *argument {
                Argument::Memory(memory) => [u64::from(b'm'), *memory],
                Argument::U32(number) => [u64::from(b'i'), u64::from(u32::try_from(number).unwrap())],
                Argument::U64(number) => [u64::from(b'l'), number as u64],
                Argument::F32(number) => [u64::from(b'f'), u64::from(number.to_bits())],
            });
        }
        self.pipes().order(&order);
        Ok(())
    }

    fn slot(&self, pixel_bytes: usize, labels: usize) -> Result<Option<HostSlot>, DemoError> {
        let mut pipes = self.pipes();
        Ok(Some(HostSlot([pixel_bytes, labels].map(|bytes| pipes.memory(bytes)))))
    }

    fn send<S: Scalar>(&self, slot: &mut HostSlot, batch: &Batch<S>) -> Result<(), DemoError> {
        let mut pixels = vec![0; batch.pixels.len() * S::BYTES];
        S::write_bytes(&batch.pixels, &mut pixels);
        let mut pipes = self.pipes();
        pipes.write(slot.0[0], &pixels);
        pipes.write(slot.0[1], &batch.labels);
        Ok(())
    }

    fn receive<'a>(&self, slot: &'a HostSlot) -> Result<(&'a u64, &'a u64), DemoError> {
        Ok((&slot.0[0], &slot.0[1]))
    }

    fn leave(&self, _slot: &HostSlot) -> Result<(), DemoError> {
        Ok(())
    }

    fn mark(&self, mark: Mark) -> Result<(), DemoError> {
        self.pipes().marks[mark as usize] = Some(Instant::now());
        Ok(())
    }

    fn seconds_between(&self, first: Mark, second: Mark) -> Result<f64, DemoError> {
        let marks = self.pipes().marks;
        Ok(marks[second as usize].unwrap().duration_since(marks[first as usize].unwrap()).as_secs_f64())
    }
}

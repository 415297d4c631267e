//! A training on a device. While the device computes a batch, the next batch is loaded and copied.

use std::time::{Duration, Instant};

use super::super::batch::Batch;
use super::super::data_set::DataSet;
use super::super::engine::{DemoStep, Engine};
use super::super::error::DemoError;
use super::super::loader::Loader;
use super::super::memory::{Charge, Ledger};
use super::super::options::DemoOptions;
use super::super::scalar::Scalar;
use super::account::Account;
use super::device::{Device, Mark};
use super::network::DeviceNetwork;

/// The network on the device, the two slots for batches, and the loader on the host.
pub(super) struct DeviceTraining<S, D: Device> {
    // The network and the slots belong to the device, so they are dropped first.
    network: DeviceNetwork<D>,
    slots: [(D::Slot, Charge); 2],
    batch: Batch<S>,
    loader: Loader<S>,
    losses: Vec<f32>,
    learning_rate: f32,
    steps: usize,
    device: D,
}

impl<S: Scalar, D: Device> DeviceTraining<S, D> {
    /// Allocates the device's part in `device_ledger` and the loader's part in `host_ledger`.
    pub(super) fn new(
        device: D,
        (device_ledger, host_ledger): (&Ledger, &Ledger),
        data_set: &DataSet,
        options: &DemoOptions,
    ) -> Result<Self, DemoError> {
        let (shape, batch_size) = (*data_set.shape(), options.batch_size);
        let account = Account::new(&device, device_ledger);
        let network = DeviceNetwork::new::<S>(&account, shape, batch_size, options.seed)?;
        let slot = || account.slot(batch_size * shape.crop_values() * S::BYTES, batch_size);
        Ok(Self {
            slots: [slot()?, slot()?],
            batch: Batch::new(host_ledger, &shape, batch_size)?,
            loader: Loader::new(host_ledger, data_set, options)?,
            losses: vec![0.0; batch_size],
            learning_rate: options.learning_rate,
            steps: 0,
            network,
            device,
        })
    }

    fn begin(&self, slot: &D::Slot) -> Result<(), DemoError> {
        let Self { device, network, .. } = self;
        let batch = device.receive(slot)?;
        device.mark(Mark::Start)?;
        network.forward::<S>(device, batch)?;
        device.mark(Mark::Forward)?;
        network.backward(device)?;
        device.mark(Mark::Backward)?;
        network.update::<S>(device, self.learning_rate)?;
        device.mark(Mark::Update)?;
        device.leave(slot)
    }

    /// Loads the next batch, starts its copy, and returns the loading time.
    fn load_into(&mut self, place: usize) -> Result<Duration, DemoError> {
        let start = Instant::now();
        self.loader.exchange(&mut self.batch)?;
        let loading = start.elapsed();
        self.device.send(&mut self.slots[place].0, &self.batch)?;
        Ok(loading)
    }

    fn time_between(&self, first: Mark, second: Mark) -> Result<Duration, DemoError> {
        let seconds = self.device.seconds_between(first, second)?;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }
}

impl<S: Scalar, D: Device> Engine for DeviceTraining<S, D> {
    fn step(&mut self) -> Result<DemoStep, DemoError> {
        let first = if self.steps == 0 { self.load_into(0)? } else { Duration::ZERO };
        let place = self.steps % 2;
        self.begin(&self.slots[place].0)?;
        let loading = self.load_into(1 - place)?;
        let loss = self.network.loss(&self.device, &mut self.losses)?;
        self.steps += 1;
        // Loading that the device's work hides is not a wait.
        let hidden = self.time_between(Mark::Start, Mark::Update)?;
        Ok(DemoStep {
            samples: self.batch.labels.len() as u64,
            loss,
            data_wait: first + loading.saturating_sub(hidden),
            forward: self.time_between(Mark::Start, Mark::Forward)?,
            backward: self.time_between(Mark::Forward, Mark::Backward)?,
            update: self.time_between(Mark::Backward, Mark::Update)?,
        })
    }
}

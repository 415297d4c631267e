//! Decides which GPUs CUDA lets a program use.

use std::collections::BTreeMap;

use super::GpuIdentity;

/// The environment variables that decide it (CUDA C++ Programming Guide, "CUDA Environment Variables").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible {
    /// `CUDA_VISIBLE_DEVICES`, if set.
    pub devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`, if set.
    pub order: Option<String>,
}

impl Visible {
    /// Returns the variables of a program that has this process's environment, plus these variables of its own.
    pub fn of(own: &BTreeMap<String, String>) -> Self {
        let variable = |name: &str| own.get(name).cloned().or_else(|| std::env::var(name).ok());
        Self { devices: variable("CUDA_VISIBLE_DEVICES"), order: variable("CUDA_DEVICE_ORDER") }
    }

    /// Returns the GPUs that the variables select, as rising indices into the list.
    ///
    /// The list ends at the first word that selects no GPU. A list with a duplicate word selects no GPU at all (as PyTorch
    /// reads it, `_parse_visible_devices` in `torch/cuda/__init__.py`).
    ///
    /// A number refers to CUDA's order, in which the fastest GPU comes first by default. It is the order of the bus only
    /// with `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or if all GPUs are of one model. If models differ, a number may mean any GPU,
    /// and only the processes show which. A divided GPU also has a number; CUDA then uses one of its instances.
    pub(in crate::machine::telemetry) fn choose(&self, gpus: &[GpuIdentity]) -> Vec<usize> {
        let all: Vec<usize> = (0..gpus.len()).collect();
        let Some(devices) = &self.devices else { return all };
        let is_certain = self.are_numbers_certain(gpus);
        let count = count(gpus);
        let mut taken: Vec<(Option<u32>, Vec<usize>)> = Vec::new();
        for word in devices.split(',').map(str::trim) {
            let number = word.parse::<u32>().ok();
            let meant = match number {
                Some(number) if number >= count => Vec::new(),
                Some(_) if !is_certain => all.clone(),
                Some(number) => all.iter().copied().filter(|&at| gpus[at].index == number).collect(),
                None => named(word, gpus),
            };
            if meant.is_empty() {
                break;
            }
            let word = (number, meant);
            if taken.contains(&word) {
                return Vec::new();
            }
            taken.push(word);
        }
        let mut places: Vec<usize> = taken.into_iter().flat_map(|(_, meant)| meant).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Returns true if it is uncertain which of the GPUs from [`choose`](Self::choose) are selected.
    pub(in crate::machine::telemetry) fn is_doubtful(&self, gpus: &[GpuIdentity]) -> bool {
        let count = count(gpus);
        let number = |word: &str| word.trim().parse::<u32>().ok().filter(|&number| number < count);
        let numbers = self.devices.iter().flat_map(|list| list.split(',').map_while(number)).count();
        (1..gpus.len()).contains(&numbers) && !self.are_numbers_certain(gpus)
    }

    fn are_numbers_certain(&self, gpus: &[GpuIdentity]) -> bool {
        let by_bus = self.order.as_deref().is_some_and(|order| order.trim() == "PCI_BUS_ID");
        by_bus || gpus.iter().all(|gpu| gpu.name == gpus[0].name)
    }
}

/// Returns the number of whole GPUs.
fn count(gpus: &[GpuIdentity]) -> u32 {
    gpus.last().map_or(0, |gpu| gpu.index + 1)
}

/// Returns the GPUs that a word selects. The word is the beginning of one identity, or `MIG-GPU-<identity>/<GPU
/// instance>/<compute instance>` as in drivers before R470. The beginning of several identities selects no GPU. A divided
/// GPU selects all of its instances.
fn named(word: &str, gpus: &[GpuIdentity]) -> Vec<usize> {
    let places = |test: &dyn Fn(&GpuIdentity) -> bool| -> Vec<usize> {
        gpus.iter().enumerate().filter(|(_, gpu)| test(gpu)).map(|(at, _)| at).collect()
    };
    if word.starts_with("MIG-") {
        return Some(places(&|gpu| gpu.uuid.starts_with(word))).filter(|found| found.len() == 1).unwrap_or_default();
    }
    if !word.starts_with("GPU-") {
        return Vec::new();
    }
    let whole = |gpu: &GpuIdentity| gpu.parent.clone().unwrap_or_else(|| gpu.uuid.clone());
    let found = places(&|gpu| whole(gpu).starts_with(word));
    let is_one = found.iter().all(|&at| whole(&gpus[at]) == whole(&gpus[found[0]]));
    if is_one { found } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, uuid: &str, name: &str, parent: Option<&str>) -> GpuIdentity {
        GpuIdentity { index, uuid: uuid.to_owned(), name: name.to_owned(), parent: parent.map(str::to_owned) }
    }

    fn chosen(gpus: &[GpuIdentity], devices: Option<&str>, order: Option<&str>) -> Vec<usize> {
        let visible = Visible { devices: devices.map(str::to_owned), order: order.map(str::to_owned) };
        visible.choose(gpus)
    }

    #[test]
    fn gpus_are_chosen_as_cuda_does() {
        let gpus = [gpu(0, "GPU-a1", "H200", None), gpu(1, "GPU-ab", "H200", None), gpu(2, "GPU-c3", "H200", None)];
        for (devices, expected) in [
            (None, vec![0, 1, 2]),
            (Some(""), vec![]),
            (Some("1"), vec![1]),
            (Some(" 2 ,0,-1,1"), vec![0, 2]),
            (Some("0,7,1"), vec![0]),
            (Some("GPU-c"), vec![2]),
            (Some("GPU-a"), vec![]),
            (Some("GPU-ab,GPU-a1,none,GPU-c"), vec![0, 1]),
            (Some("NoDevFiles"), vec![]),
            (Some("0,0"), vec![]),
            (Some("1,0, 1"), vec![]),
            (Some("1,-1,1"), vec![1]),
            (Some("GPU-ab,GPU-c,GPU-ab"), vec![]),
            (Some("GPU-c3,GPU-c"), vec![]),
        ] {
            assert_eq!(chosen(&gpus, devices, None), expected, "{devices:?}");
        }
        assert_eq!(chosen(&[], Some("0"), None), Vec::<usize>::new());
    }

    #[test]
    fn a_number_means_any_where_gpus_differ_and_the_fastest_comes_first() {
        let gpus = [gpu(0, "GPU-a1", "T4", None), gpu(1, "GPU-b2", "H200", None)];
        assert_eq!(chosen(&gpus, Some("0"), None), vec![0, 1]);
        assert_eq!(chosen(&gpus, Some("0"), Some("FASTEST_FIRST")), vec![0, 1]);
        assert_eq!(chosen(&gpus, Some("0"), Some("PCI_BUS_ID")), vec![0]);
        assert_eq!(chosen(&gpus, Some("GPU-b"), None), vec![1]);
        assert_eq!(chosen(&gpus, Some("1,0"), None), vec![0, 1]);
        assert_eq!(chosen(&gpus, Some("1,1"), None), Vec::<usize>::new());
        for (devices, order, expected) in [
            (Some("0"), None, true),
            (Some("1,7"), None, true),
            (Some("1,0"), None, false),
            (Some("0"), Some("PCI_BUS_ID"), false),
            (Some("GPU-b"), None, false),
            (None, None, false),
        ] {
            let visible = Visible { devices: devices.map(str::to_owned), order: order.map(str::to_owned) };
            assert_eq!(visible.is_doubtful(&gpus), expected, "{devices:?} {order:?}");
        }
    }

    #[test]
    fn instances_are_chosen_by_their_identity_or_with_their_gpu() {
        let gpus = [
            gpu(0, "MIG-1111", "H200 MIG 1g.18gb", Some("GPU-a1")),
            gpu(0, "MIG-2222", "H200 MIG 1g.18gb", Some("GPU-a1")),
        ];
        assert_eq!(chosen(&gpus, Some("MIG-2222"), None), vec![1]);
        assert_eq!(chosen(&gpus, Some("MIG-"), None), Vec::<usize>::new());
        assert_eq!(chosen(&gpus, Some("0"), None), vec![0, 1]);
        assert_eq!(chosen(&gpus, Some("GPU-a1"), None), vec![0, 1]);
        let old = [gpu(0, "MIG-GPU-a1/7/0", "A100 MIG 1g.5gb", Some("GPU-a1"))];
        assert_eq!(chosen(&old, Some("MIG-GPU-a1/7/0"), None), vec![0]);
    }
}

//! The scratch layer of a search. gputune tries out which folders the layer can cover. Each probe has its own part of
//! the layer.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::layout::{Layer, Layout, Refused, Stage, Step};
use super::places::{self, Kind, Mount, Places, any_below};
use super::store::{Room, Store, free_bytes, remove};
use super::surroundings::Surroundings;
use super::{data, enter, layout};
use crate::model::Headroom;

/// Folders of the system's own files, to which no job should write (FHS 3.0, sections 3 and 4).
const OF_THE_SYSTEM: &[&str] = &["/bin", "/boot", "/lib", "/lib32", "/lib64", "/sbin", "/usr"];

/// The maximum number of attempts; each leaves out a folder that cannot be covered. A round number.
const MOST_TRIES: usize = 24;

/// The prefix of the names of probes that run next to another probe.
const BESIDE: &str = "beside-";

/// Returns the name of the probe at this place among the open probes, counted from 0.
pub(in crate::probe) fn name(place: usize) -> String {
    if place == 0 { "probe".to_owned() } else { format!("{BESIDE}{place}") }
}

/// The folders that are covered in each probe of a search.
#[derive(Debug)]
pub(super) struct Scratch {
    store: Store,
    /// The user and group to map in a user namespace; `None` to mount without a user namespace.
    user: Option<(u32, u32)>,
    user_attributes: bool,
    places: Places,
    /// Folders of data and of the system, which are read-only instead of covered.
    data: BTreeSet<PathBuf>,
    /// Caches, each with the lower folder of its layer: the cache itself, or an empty folder if the cache does not
    /// exist.
    caches: Vec<(PathBuf, PathBuf)>,
    pipes: Vec<PathBuf>,
    /// The working folder, the home, and the folders that the command names.
    near: Vec<PathBuf>,
    most_bytes: u64,
    /// The bytes that were free when the search began.
    free_bytes: u64,
}

/// The place of one probe's writes, which is removed when dropped.
#[derive(Debug)]
pub(in crate::probe) struct ProbeScratch {
    pub(in crate::probe) folder: PathBuf,
    /// The mount namespace; `None` if guards redirect writes to `folder`.
    pub(in crate::probe) layout: Option<Layout>,
    pub(in crate::probe) room: Room,
}

impl ProbeScratch {
    pub(super) fn without_layers(folder: PathBuf, most_bytes: u64) -> io::Result<Self> {
        remove(&folder);
        fs::create_dir(&folder)?;
        Ok(Self { room: Room::new(&folder, most_bytes), layout: None, folder })
    }
}

impl Drop for ProbeScratch {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

impl Scratch {
    /// Finds the best layer that works on this machine. The error is the reason why no layer works.
    pub(super) fn find(around: &Surroundings, supervisor: &Path, size: Headroom) -> Result<Self, String> {
        let mounts = places::read_mounts().map_err(|error| format!("/proc/self/mountinfo cannot be read: {error}"))?;
        let (mut unmade, mut refusals) = (Vec::new(), Vec::new());
        for parent in parents(around, &mounts) {
            let store = match Store::create(&parent) {
                Ok(store) => store,
                Err(error) => {
                    unmade.push(format!("no folder can be made in {}: {error}", parent.display()));
                    continue;
                }
            };
            let free = free_bytes(store.path()).unwrap_or(0);
            let (most, mut store) = (size.of(free), Some(store));
            for user in ways() {
                let Some(own) = store.take() else { break };
                let mut scratch = Self::planned(own, user, around, &mounts, (most.min(free), free));
                match scratch.settle(around, supervisor) {
                    Ok(()) => return Ok(scratch),
                    Err(refused) => refusals.push(refused.words(user.is_some())),
                }
                store = Some(scratch.store);
            }
        }
        Err(best_reason(&refusals, ways().len(), &unmade))
    }

    fn planned(
        store: Store,
        user: Option<(u32, u32)>,
        around: &Surroundings,
        mounts: &[Mount],
        (most_bytes, free_bytes): (u64, u64),
    ) -> Self {
        let near: Vec<PathBuf> = around.essential().chain(&around.named).cloned().collect();
        let places = match user {
            None => places::of_mounts(mounts, store.path()),
            Some(_) => places::of_user(mounts, &[&near[..], &[around.temporary.clone(), around.out.clone()]].concat()),
        };
        let mut scratch = Self {
            user,
            user_attributes: user.is_some() || !maps_everybody(),
            data: BTreeSet::new(),
            caches: Vec::new(),
            pipes: around.pipes.clone(),
            near,
            places,
            most_bytes,
            free_bytes,
            store,
        };
        scratch.data = scratch.data_folders(around, mounts);
        scratch.caches = scratch.cache_folders(&around.caches);
        scratch
    }

    /// Tries the layout, and leaves out folders that cannot be covered, unless the script needs them.
    fn settle(&mut self, around: &Surroundings, supervisor: &Path) -> Result<(), Refused> {
        let file = there_before(&around.cwd);
        let mut last = None;
        for _ in 0..MOST_TRIES {
            let probe = self.for_probe("rehearsal", &[]).map_err(enter::refused(Stage::Rehearsal))?;
            let Some(layout) = &probe.layout else { break };
            match enter::rehearse(supervisor, layout, file.as_deref()) {
                Ok(()) => return Ok(()),
                Err(refused) if self.leave_out(&refused, around) => last = Some(refused),
                Err(refused) => return Err(refused),
            }
        }
        Err(last.unwrap_or(Refused { stage: Stage::Rehearsal, errno: 0 }))
    }

    /// Leaves out a folder that could not be covered. Returns false if the script needs the folder, or if the failure
    /// names no folder.
    fn leave_out(&mut self, refused: &Refused, around: &Surroundings) -> bool {
        let (Stage::Mount { folder, .. } | Stage::Write { folder }) = &refused.stage else { return false };
        let is_cache = self.caches.extract_if(.., |(cache, _)| cache == folder).count() > 0;
        if self.data.remove(folder) || is_cache {
            return true;
        }
        if folder == Path::new("/") || around.essential().any(|needed| needed.starts_with(folder)) {
            return false;
        }
        if self.places.covered.extract_if(.., |(place, _)| place == folder).count() == 0 {
            return false;
        }
        if self.user.is_none() {
            let flags = rustix::mount::MountFlags::empty();
            let mount = Mount { target: folder.clone(), kind: Kind::Disk, is_read_only: false, flags };
            self.places.read_only.push(mount);
        }
        true
    }

    fn is_covered(&self, folder: &Path) -> bool {
        let as_they_are = &self.places.as_they_are;
        self.places.covered.iter().any(|(place, _)| folder.starts_with(place))
            && !as_they_are.iter().any(|place| folder.starts_with(place))
    }

    fn data_folders(&self, around: &Surroundings, mounts: &[Mount]) -> BTreeSet<PathBuf> {
        let covered = || self.places.covered.iter().map(|(place, _)| place);
        let starts = [&around.cwd].into_iter().chain(&around.named).chain(&around.prefix);
        let starts: Vec<PathBuf> = starts.chain(covered().filter(|place| place.parent().is_some())).cloned().collect();
        let mut not = vec![around.out.clone(), around.temporary.clone(), self.store.path().to_owned()];
        not.extend(around.essential().chain(&around.caches).chain(covered()).cloned());
        let mut found = data::folders(&starts, &not);
        let system = OF_THE_SYSTEM.iter().map(PathBuf::from).filter(|folder| {
            let is_own = fs::symlink_metadata(folder).is_ok_and(|data| data.is_dir());
            is_own && not.iter().all(|kept| !kept.starts_with(folder))
        });
        found.extend(system);
        found.retain(|folder| self.is_covered(folder) && !any_below(mounts, folder));
        let is_inner = |folder: &PathBuf| found.iter().any(|other| other != folder && folder.starts_with(other));
        found.iter().filter(|folder| !is_inner(folder)).cloned().collect()
    }

    /// Returns the covered caches, each with the lower folder of its layer (see `caches`).
    fn cache_folders(&self, caches: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
        let place = |folder: &PathBuf| {
            let there = folder.canonicalize().ok();
            let target = there.clone().unwrap_or_else(|| folder.clone());
            let below = there.unwrap_or_else(|| self.store.path().join("empty"));
            (self.is_covered(&target) && !self.data.iter().any(|data| target.starts_with(data)))
                .then_some((target, below))
        };
        caches.iter().filter_map(place).collect()
    }

    /// Makes the part of one probe. The probe reads and writes `own`, gputune's folders, directly.
    pub(in crate::probe) fn for_probe(&self, name: &str, own: &[PathBuf]) -> io::Result<ProbeScratch> {
        let folder = self.store.path().join(name);
        remove(&folder);
        let root = folder.join("root");
        fs::create_dir_all(&root)?;
        // A supervisor may have removed the whole store.
        fs::create_dir_all(self.store.path().join("empty"))?;
        let mut steps = self.base();
        for (at, (place, kind)) in self.places.covered.iter().enumerate() {
            let store = folder.join(at.to_string());
            fs::create_dir(&store)?;
            let memory_bytes = (*kind == Kind::Memory)
                .then(|| free_bytes(place).unwrap_or(self.most_bytes).clamp(1 << 20, self.most_bytes.max(1 << 20)));
            let layer = Layer { folder: place.clone(), below: place.clone(), store, memory_bytes, is_shared: false };
            steps.push(Step::Layer(layer));
        }
        // A folder comes before its contents; steps for the same folder stay in order.
        steps.sort_by_key(|step| (!matches!(step, Step::Everything), step.folder().components().count()));
        let data = self.data.iter();
        steps.extend(data.map(|data| Step::AsItIs { folder: data.clone(), read_only: true, whole: true }));
        for (at, (cache, below)) in self.caches.iter().enumerate() {
            // Two mounts with one upper folder are undefined (kernel documentation, filesystems/overlayfs.rst, "Sharing and
            // copying layers").
            let whose = if name.starts_with(BESIDE) { format!("-{name}") } else { String::new() };
            let store = self.store.path().join(format!("cache-{at}{whose}"));
            fs::create_dir_all(&store)?;
            let (folder, below) = (cache.clone(), below.clone());
            steps.push(Step::Layer(Layer { folder, below, store, memory_bytes: None, is_shared: true }));
        }
        let as_it_is = |folder: PathBuf| Step::AsItIs { folder, read_only: false, whole: true };
        let pipes = self.pipes.iter().filter(|folder| folder.is_dir() && self.is_covered(folder)).cloned();
        steps.extend(pipes.chain(self.sockets()).map(as_it_is));
        steps.push(Step::Empty { folder: self.store.path().to_owned() });
        steps.extend(own.iter().cloned().map(as_it_is));
        let layout = Layout { user: self.user, user_attributes: self.user_attributes, root, steps };
        Ok(ProbeScratch { room: Room::new(&folder, self.most_bytes), folder, layout: Some(layout) })
    }

    /// Returns the steps before the layers: everything, or the folders that stay as they are, then the read-only
    /// mounts.
    fn base(&self) -> Vec<Step> {
        let read_only = |mount: &Mount| Step::ReadOnly { folder: mount.target.clone(), flags: mount.flags.bits() };
        if self.user.is_some() {
            let mounts = self.places.read_only.iter().map(read_only);
            return [Step::Everything].into_iter().chain(mounts).collect();
        }
        let of = |folder: &PathBuf, read_only| Step::AsItIs { folder: folder.clone(), read_only, whole: !read_only };
        let whole = self.places.as_they_are.iter().map(|folder| of(folder, false));
        whole.chain(self.places.read_only.iter().map(|mount| of(&mount.target, true))).collect()
    }

    /// Returns the sockets of listening programs. An overlay would show them as new files without a listener.
    fn sockets(&self) -> impl Iterator<Item = PathBuf> {
        const MOST: usize = 256;
        let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let paths = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(7)).map(PathBuf::from);
        let paths: BTreeSet<PathBuf> = paths.filter(|path| path.is_absolute() && self.is_covered(path)).collect();
        let is_socket = |path: &PathBuf| {
            use std::os::unix::fs::FileTypeExt;
            fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket())
        };
        paths.into_iter().filter(is_socket).take(MOST)
    }

    /// Covers the data folders that a probe tried to write to according to these lines. Returns true if any was found.
    pub(in crate::probe) fn cover_written(&mut self, lines: &[String]) -> bool {
        let refused: Vec<&String> = lines.iter().filter(|line| layout::is_read_only_error(line)).collect();
        if refused.is_empty() || self.data.is_empty() {
            return false;
        }
        let is_named = |folder: &PathBuf| {
            let path = folder.display().to_string();
            refused.iter().any(|line| line.contains(&path))
        };
        let all = self.data.len();
        self.data.retain(|folder| !is_named(folder));
        if self.data.len() == all {
            // The error named a relative path, or no path: cover all.
            self.data.clear();
        }
        true
    }

    pub(super) fn store(&self) -> &Path {
        self.store.path()
    }

    pub(super) fn covered(&self) -> Vec<PathBuf> {
        self.nearest_first(self.places.covered.iter().map(|(place, _)| place.clone()).collect())
    }

    /// Moves the folders that the job is known to use to the front.
    fn nearest_first(&self, mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
        let is_near =
            |folder: &PathBuf| self.near.iter().any(|near| near.starts_with(folder) || folder.starts_with(near));
        folders.sort_by_key(|folder| !is_near(folder));
        folders
    }

    /// Returns folders of the job that stay unchanged: data folders, and mounts that cannot be covered.
    pub(super) fn read_only(&self) -> Vec<PathBuf> {
        let is_near = |folder: &&PathBuf| self.near.iter().any(|near| folder.starts_with(near));
        let data = self.data.iter().filter(is_near);
        let mounts = self.places.read_only.iter().filter(|mount| !mount.is_read_only && mount.target.is_dir());
        let mounts = mounts.map(|mount| &mount.target).filter(|_| self.user.is_none());
        self.nearest_first(data.chain(mounts).cloned().collect())
    }

    /// Returns the bytes that a probe may write, and the bytes that are free.
    pub(super) fn bounds(&self) -> (u64, u64) {
        (self.most_bytes, self.free_bytes)
    }
}

/// Returns the folders in which layers may be kept, best first. The order is gputune's own folder, the folder of temporary files
/// that survive reboots (FHS 3.0, section 5.15), then the folder of other temporary files. Folders in memory come last, because
/// checkpoints are large.
fn parents(around: &Surroundings, mounts: &[Mount]) -> Vec<PathBuf> {
    let mut parents = vec![around.out.clone(), PathBuf::from("/var/tmp"), around.temporary.clone()];
    let is_memory = |folder: &PathBuf| places::mount_of(folder, mounts).is_some_and(|mount| mount.kind == Kind::Memory);
    parents.sort_by_key(is_memory);
    let mut seen = BTreeSet::new();
    parents.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    parents
}

/// Returns the best reason why no layer works. `refusals` has a reason for each way to mount, first for the best folder.
/// `unmade` has the reasons why layers cannot be kept in some folders; they matter only if no folder was tried.
fn best_reason(refusals: &[String], ways: usize, unmade: &[String]) -> String {
    // The last way gives the best reason: a root user who may not mount may still mount in a user namespace.
    let refusal = refusals.get(ways.saturating_sub(1)).or(refusals.first());
    refusal.or(unmade.first()).cloned().unwrap_or_else(|| "there is no place for it".to_owned())
}

/// Returns the ways to mount: as the current user, or in a user namespace.
fn ways() -> Vec<Option<(u32, u32)>> {
    let user = rustix::process::geteuid();
    let mapped = Some((user.as_raw(), rustix::process::getegid().as_raw()));
    if user.is_root() { vec![None, mapped] } else { vec![mapped] }
}

/// Returns true if this is the initial user namespace, in which every user is mapped to itself (user_namespaces(7)).
fn maps_everybody() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns a small file in the folder, if this user may change such a file.
fn there_before(folder: &Path) -> Option<PathBuf> {
    const LARGEST: u64 = 1 << 20;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(200);
    let files = entries.filter(|entry| entry.metadata().is_ok_and(|data| data.is_file() && data.len() <= LARGEST));
    let writable = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    files.map(|entry| entry.path()).find(writable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mount_is_a_better_reason_than_a_folder_that_cannot_be_made() {
        let [unmade, own, mapped] = ["unmade", "own", "mapped"].map(|reason| vec![reason.to_owned()]);
        assert_eq!(best_reason(&mapped, 1, &unmade), "mapped");
        assert_eq!(best_reason(&[own, mapped].concat(), 2, &unmade), "mapped");
        assert_eq!(best_reason(&[], 2, &unmade), "unmade");
    }
}

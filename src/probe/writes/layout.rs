//! The layout of a probe's mount namespace: the mounts that cover folders, in order.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The recipe for a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::probe) struct Layout {
    /// User and group to map to themselves in a user namespace; `None` if this user may mount without a user namespace.
    pub(super) user: Option<(u32, u32)>,
    /// True if layers keep their marks in `user.*` attributes. A user namespace needs this (kernel documentation,
    /// filesystems/overlayfs.rst, "User xattr").
    pub(super) user_attributes: bool,
    /// The empty folder at which the new root is built.
    pub(super) root: PathBuf,
    pub(super) steps: Vec<Step>,
}

/// One mount. `folder` is a path in the new root; all other paths are current paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// All current mounts.
    Everything,
    /// Makes a mount read-only; its other options are kept.
    ReadOnly { folder: PathBuf, flags: u32 },
    /// A layer that takes the writes to a folder.
    Layer(Layer),
    /// An unchanged file or folder in its own place. If `whole`, it includes everything mounted below.
    AsItIs { folder: PathBuf, read_only: bool, whole: bool },
    /// An empty folder in place of another.
    Empty { folder: PathBuf },
}

/// A layer for the writes to a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layer {
    pub(super) folder: PathBuf,
    /// The lower folder: the folder itself, unless it does not exist.
    pub(super) below: PathBuf,
    /// Holds the folders `upper` and `work`.
    pub(super) store: PathBuf,
    /// The size of a file system in memory to mount at `store` first.
    pub(super) memory_bytes: Option<u64>,
    /// True if other probes of the search also see the writes; then the writes must survive a crash.
    pub(super) is_shared: bool,
}

impl Layer {
    pub(super) fn upper(&self) -> PathBuf {
        self.store.join("upper")
    }

    pub(super) fn work(&self) -> PathBuf {
        self.store.join("work")
    }
}

impl Step {
    /// Returns the folder that the step covers.
    pub(super) fn folder(&self) -> &Path {
        match self {
            Self::Everything => Path::new("/"),
            Self::ReadOnly { folder, .. } | Self::AsItIs { folder, .. } | Self::Empty { folder } => folder,
            Self::Layer(layer) => &layer.folder,
        }
    }
}

/// The reason why a namespace could not be made: the first step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::probe) struct Refused {
    pub(super) stage: Stage,
    /// The number of the error (errno(3)); 0 if unknown.
    pub(super) errno: i32,
}

/// The step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Namespace,
    Map,
    Mount {
        step: usize,
        folder: PathBuf,
    },
    Root,
    /// Trying to write to a layer.
    Write {
        folder: PathBuf,
    },
    /// Trying to change an existing file.
    Change {
        file: PathBuf,
    },
    /// The rehearsal itself could not be run, or did not finish.
    Rehearsal,
}

impl Layout {
    /// Returns the same layout for a process that is already in the user namespace.
    pub(in crate::probe) fn without_user_namespace(self) -> Self {
        Self { user: None, ..self }
    }

    /// Returns true if the layout needs a user namespace.
    pub(in crate::probe) fn has_user_namespace(&self) -> bool {
        self.user.is_some()
    }
}

//! Silences experiment trackers in a probe by their own variables: no run, no writes to the user's folders, no connection.

use std::collections::BTreeMap;
use std::path::Path;

/// A variable that keeps a tracker silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silencer {
    /// The tracker that it silences.
    pub tracker: &'static str,
    /// The variable.
    pub variable: &'static str,
    /// Its value; `{scratch}` stands for a folder that is removed with the probe.
    pub value: &'static str,
    /// The effect of the value.
    pub about: &'static str,
    /// The page of the tracker's maker that documents it.
    pub source: &'static str,
}

/// The variables, by tracker. Each was tested with the tracker itself: `docs/design/writes.md` lists the versions.
pub const SILENCERS: &[Silencer] = &[
    Silencer {
        tracker: "W&B",
        variable: "WANDB_MODE",
        value: "disabled",
        about: "calls do nothing",
        source: "https://docs.wandb.ai/support/difference_wandbinit_modes",
    },
    Silencer {
        tracker: "Weave",
        variable: "WEAVE_DISABLED",
        value: "true",
        about: "nothing is traced",
        source: "https://docs.wandb.ai/weave/guides/core-types/env-vars",
    },
    Silencer {
        tracker: "MLflow",
        variable: "MLFLOW_TRACKING_URI",
        value: "file://{scratch}/mlruns",
        about: "runs go to a temporary folder",
        source: "https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html",
    },
    Silencer {
        tracker: "MLflow",
        variable: "MLFLOW_ALLOW_FILE_STORE",
        value: "true",
        about: "allows such a folder after version 3.10",
        source: "https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html",
    },
    Silencer {
        tracker: "MLflow",
        variable: "MLFLOW_DISABLE_TELEMETRY",
        value: "true",
        about: "no connection",
        source: "https://mlflow.org/docs/latest/community/usage-tracking/",
    },
    Silencer {
        tracker: "Comet",
        variable: "COMET_AUTO_LOG_DISABLE",
        value: "1",
        about: "experiments are disabled",
        source: "https://www.comet.com/docs/v2/guides/experiment-management/configure-sdk/",
    },
    Silencer {
        tracker: "Neptune",
        variable: "NEPTUNE_MODE",
        value: "debug",
        about: "nothing is stored or sent",
        source: "https://docs-legacy.neptune.ai/api/connection_modes/",
    },
    Silencer {
        tracker: "ClearML",
        variable: "CLEARML_OFFLINE_MODE",
        value: "1",
        about: "no connection; files go to the cache",
        source: "https://clear.ml/docs/latest/docs/guides/set_offline/",
    },
    Silencer {
        tracker: "ClearML",
        variable: "CLEARML_CACHE_DIR",
        value: "{scratch}/clearml",
        about: "the cache is a temporary folder",
        source: "https://clear.ml/docs/latest/docs/configs/env_vars/",
    },
    Silencer {
        tracker: "SwanLab",
        variable: "SWANLAB_MODE",
        value: "disabled",
        about: "calls do nothing",
        source: "https://docs.swanlab.cn/en/api/environment-variable.html",
    },
    Silencer {
        tracker: "Trackio",
        variable: "TRACKIO_DIR",
        value: "{scratch}/trackio",
        about: "runs go to a temporary folder",
        source: "https://huggingface.co/docs/trackio/environment_variables",
    },
    Silencer {
        tracker: "hubs, and what a script says itself",
        variable: "GPUTUNE_TRACKERS",
        value: "silent",
        about: "the hook drops pushes to the Hugging Face Hub, Trackio's Spaces, DVCLive's experiments, \
                and arguments such as `wandb.init(mode=\"online\")` that go before the variables above; `allow` ends that",
        source: "",
    },
];

/// Sets variables that the spec does not set. They override inherited variables, because a shell may well have `WANDB_MODE=online`.
pub(super) fn silence(env: &mut BTreeMap<String, String>, scratch: &Path) {
    for silencer in SILENCERS {
        let value = || silencer.value.replace("{scratch}", &scratch.display().to_string());
        env.entry(silencer.variable.to_owned()).or_insert_with(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_is_there_once_and_says_where_it_is_described() {
        for (at, silencer) in SILENCERS.iter().enumerate() {
            assert!(SILENCERS[..at].iter().all(|other| other.variable != silencer.variable), "{}", silencer.variable);
            let is_ours = silencer.variable.starts_with("GPUTUNE_");
            assert_eq!(silencer.source.starts_with("https://"), !is_ours, "{}", silencer.variable);
        }
    }
}

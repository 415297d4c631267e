//! The objects of a search on Kubernetes, as readable YAML. The same options give the same YAML.

use gputune::probe::worker::Token;

/// The port that workers dial: any port above 1023 would do.
const PORT: u16 = 7331;

/// The contents of the objects.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The name of the search, which begins the names of all objects.
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) image: String,
    /// The spec's file name, and its text.
    pub(super) spec: (String, String),
    /// The folder of the script in the image, where the spec is put.
    pub(super) workdir: String,
    /// The gputune program in the image.
    pub(super) gputune: String,
    pub(super) workers: u32,
    pub(super) gpus: u32,
    pub(super) cpu: Option<String>,
    pub(super) memory: Option<String>,
    /// The claim for the results.
    pub(super) claim: Option<String>,
    /// More claims, with their mount points.
    pub(super) mounts: Vec<(String, String)>,
    pub(super) selectors: Vec<(String, String)>,
    pub(super) user: Option<u32>,
    pub(super) deadline_s: u64,
    pub(super) has_failure_policy: bool,
    pub(super) token: Option<Token>,
}

/// The name of the secret.
pub(super) fn secret_name(name: &str) -> String {
    format!("{name}-token")
}

/// Returns all objects, each after a line of three dashes.
pub(super) fn yaml(wanted: &Wanted) -> String {
    let mut text = wanted.preface();
    text.extend(wanted.token.as_ref().map(|token| wanted.secret(token)));
    text += &wanted.config_map();
    text += &wanted.service();
    text += &wanted.driver();
    text.extend((1..=wanted.workers).map(|number| wanted.worker(number)));
    text
}

/// The secret alone.
pub(super) fn secret(wanted: &Wanted, token: &Token) -> String {
    wanted.secret(token)
}

/// Quotes a string for any place in YAML: JSON is valid YAML (YAML 1.2, 1.3).
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Indents the lines of a text.
fn indented(text: &str, by: usize) -> String {
    let margin = " ".repeat(by);
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("{margin}{line}\n") }).collect()
}

/// Formats lines as the value of a key: a readable block if their characters allow it (YAML 1.2, 5.1 and 8.1).
fn block(text: &str, by: usize) -> String {
    let is_plain = |letter: char| {
        letter == '\n' || letter == '\t' || !(letter.is_control() || "\u{2028}\u{2029}\u{feff}".contains(letter))
    };
    let lines_end_alike = text.ends_with('\n') && !text.ends_with("\n\n");
    if !lines_end_alike || !text.chars().all(is_plain) || text.starts_with([' ', '\n', '\t']) {
        return format!(" {}\n", quoted(text));
    }
    format!(" |\n{}", indented(text, by))
}

impl Wanted {
    fn preface(&self) -> String {
        let Self { name, .. } = self;
        let secret = secret_name(name);
        let namespace = self.namespace.as_ref().map(|namespace| format!(" -n {namespace}"));
        let kubectl = format!("kubectl{}", namespace.unwrap_or_default());
        let mut text = format!(
            "# A search with gputune: `gputune cluster k8s` wrote this. docs/kubernetes.md tells of it.\n\
             # Follow it: {kubectl} logs -f job/{name}-driver\n"
        );
        if self.token.is_none() {
            text += &format!(
                "# The token is not in here. Once, before the rest:\n#   gputune cluster token token\n#   {kubectl} create secret generic {secret} --from-file=token=token\n"
            );
        } else {
            text += "# It holds the token: keep it as you keep passwords.\n";
        }
        if self.claim.is_none() {
            text += "# Without a claim, the driver's log is the only result: it ends with the best config.\n";
        }
        text
    }

    fn metadata(&self, name: &str, part: &str) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("  namespace: {}\n", quoted(namespace)));
        format!("metadata:\n  name: {name}\n{}{}", namespace.unwrap_or_default(), indented(&self.labels(part), 2))
    }

    fn labels(&self, part: &str) -> String {
        format!(
            "labels:\n  app.kubernetes.io/name: gputune\n  app.kubernetes.io/instance: {}\n  app.kubernetes.io/component: {part}\n",
            self.name
        )
    }

    fn secret(&self, token: &Token) -> String {
        let metadata = self.metadata(&secret_name(&self.name), "token");
        format!(
            "---\napiVersion: v1\nkind: Secret\n{metadata}type: Opaque\nstringData:\n  token: {}\n",
            quoted(&token.digits())
        )
    }

    fn config_map(&self) -> String {
        let (file, text) = &self.spec;
        let metadata = self.metadata(&format!("{}-spec", self.name), "spec");
        format!("---\napiVersion: v1\nkind: ConfigMap\n{metadata}data:\n  {file}:{}", block(text, 4))
    }

    /// Returns a Service without an address of its own: its name resolves to the driver.
    fn service(&self) -> String {
        let name = format!("{}-driver", self.name);
        let metadata = self.metadata(&name, "driver");
        format!(
            "---\napiVersion: v1\nkind: Service\n{metadata}spec:\n  clusterIP: None\n  # Workers may dial before the driver is ready.\n  \
             publishNotReadyAddresses: true\n  selector:\n    app.kubernetes.io/instance: {}\n    \
             app.kubernetes.io/component: driver\n  ports:\n    - name: workers\n      port: {PORT}\n",
            self.name
        )
    }

    fn driver(&self) -> String {
        let out = self.claim.as_ref().map_or("/tmp".to_owned(), |_| "/mnt/results".to_owned());
        let words = [
            &self.gputune,
            "search",
            &self.spec_path(),
            "--out",
            &format!("{out}/{}", self.name),
            "--listen",
            &format!("$(POD_IP):{PORT}"),
            "--token-file",
            "/run/gputune/token",
        ];
        let address = "env:\n  - name: POD_IP\n    valueFrom:\n      fieldRef:\n        fieldPath: status.podIP\n";
        let ports = format!("ports:\n  - name: workers\n    containerPort: {PORT}\n");
        let resources = "resources:\n  requests:\n    cpu: \"1\"\n    memory: 1Gi\n  limits:\n    memory: 4Gi\n";
        let results = self.claim.as_ref().map(|claim| (claim.as_str(), "/mnt/results"));
        self.job("driver", "driver", &words.map(str::to_owned), &format!("{address}{ports}{resources}"), results)
    }

    fn worker(&self, number: u32) -> String {
        let words = [
            &self.gputune,
            "worker",
            "--dial",
            &format!("{}-driver:{PORT}", self.name),
            "--token-file",
            "/run/gputune/token",
            "--wait",
            "5m",
            "--again",
        ];
        let gpus = (self.gpus > 0).then(|| format!("nvidia.com/gpu: {}\n", self.gpus));
        let cpu = self.cpu.as_ref().map(|cpu| format!("cpu: {}\n", quoted(cpu)));
        let memory = self.memory.as_ref().map(|memory| format!("memory: {}\n", quoted(memory)));
        let share: String = [gpus, cpu, memory].into_iter().flatten().collect();
        // Limits equal requests: a probe must not run faster on resources that a neighbour leaves idle.
        let resources = format!("resources:\n  requests:\n{0}  limits:\n{0}", indented(&share, 4));
        let resources = if share.is_empty() { String::new() } else { resources };
        self.job(&format!("worker-{number}"), "worker", &words.map(str::to_owned), &resources, None)
    }

    fn spec_path(&self) -> String {
        format!("{}/{}", self.workdir.trim_end_matches('/'), self.spec.0)
    }

    /// Returns a job of one pod without retries; `container` has the lines that differ between jobs.
    fn job(&self, name: &str, part: &str, words: &[String], container: &str, results: Option<(&str, &str)>) -> String {
        let metadata = self.metadata(&format!("{}-{name}", self.name), part);
        let mut text = format!(
            "---\napiVersion: batch/v1\nkind: Job\n{metadata}spec:\n  backoffLimit: 0\n  activeDeadlineSeconds: {}\n",
            self.deadline_s
        );
        if self.has_failure_policy {
            text += "  # A pod that gives way to another, or whose node goes, starts anew.\n  podFailurePolicy:\n    rules:\n      \
                     - action: Ignore\n        onPodConditions:\n          - type: DisruptionTarget\n            status: \"True\"\n";
        }
        text += &format!("  template:\n    metadata:\n{}    spec:\n", indented(&self.labels(part), 6));
        text +=
            "      restartPolicy: Never\n      automountServiceAccountToken: false\n      enableServiceLinks: false\n";
        text += "      # Time to write the results.\n      terminationGracePeriodSeconds: 60\n";
        if let Some(user) = self.user {
            text += &format!(
                "      securityContext:\n        runAsNonRoot: true\n        runAsUser: {user}\n        runAsGroup: {user}\n        fsGroup: {user}\n"
            );
        }
        if part == "worker" {
            text += &self.placed();
        }
        text += &format!("      containers:\n        - name: gputune\n          image: {}\n", quoted(&self.image));
        text += &format!("          workingDir: {}\n          command:\n", quoted(&self.workdir));
        // Copies the spec into the script's folder: gputune could not cover a mounted file where it keeps the writes of probes
        // apart.
        let file = &self.spec.0;
        let copy = format!(
            "cp /run/gputune-spec/{file} ./.{file}.$HOSTNAME && mv ./.{file}.$HOSTNAME ./{file} && exec \"$@\""
        );
        let before = ["sh", "-c", &copy, "sh"].map(str::to_owned);
        text.extend(before.iter().chain(words).map(|word| format!("            - {}\n", quoted(word))));
        text += &indented(container, 10);
        text + &self.volumes(part, results)
    }

    /// Returns the lines that choose a worker's nodes.
    fn placed(&self) -> String {
        let mut text = String::new();
        if self.gpus > 0 {
            text += "      tolerations:\n        - key: nvidia.com/gpu\n          operator: Exists\n          effect: NoSchedule\n";
        }
        if !self.selectors.is_empty() {
            text += "      nodeSelector:\n";
            text.extend(
                self.selectors.iter().map(|(key, value)| format!("        {}: {}\n", quoted(key), quoted(value))),
            );
        }
        text
    }

    fn volumes(&self, part: &str, results: Option<(&str, &str)>) -> String {
        let mut mounts =
            "- name: token\n  mountPath: /run/gputune\n  readOnly: true\n- name: spec\n  mountPath: /run/gputune-spec\n  readOnly: true\n"
                .to_owned();
        let mut volumes = format!(
            "- name: token\n  secret:\n    secretName: {}\n    defaultMode: 256 # 0400\n- name: spec\n  configMap:\n    name: {}-spec\n",
            secret_name(&self.name),
            self.name
        );
        if part == "worker" {
            // Loader workers pass batches through shared memory, and the default of 64 MiB is not enough.
            mounts += "- name: shm\n  mountPath: /dev/shm\n";
            volumes += "- name: shm\n  emptyDir:\n    medium: Memory\n";
        }
        let claims = self.mounts.iter().map(|(claim, path)| (claim.as_str(), path.as_str()));
        for (number, (claim, path)) in results.into_iter().chain(claims).enumerate() {
            let name = format!("claim-{}", number + 1);
            mounts += &format!("- name: {name}\n  mountPath: {}\n", quoted(path));
            volumes += &format!("- name: {name}\n  persistentVolumeClaim:\n    claimName: {}\n", quoted(claim));
        }
        format!("          volumeMounts:\n{}      volumes:\n{}", indented(&mounts, 12), indented(&volumes, 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_readable_where_it_can_be() {
        assert_eq!(block("a = 1\n\n  b\n", 4), " |\n    a = 1\n\n      b\n");
        for odd in ["", "no end", "two ends\n\n", "\r\n", " margin\n", "\u{7}\n"] {
            assert!(block(odd, 4).starts_with(" \""), "{odd:?}");
        }
    }
}

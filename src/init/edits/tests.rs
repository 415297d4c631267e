//! Tests the edits for scripts of many shapes.

use std::path::Path;

use super::*;
use crate::probe::Template;
use crate::probe::adapter::{Apply, Target};

/// Makes parameters that are named after their targets.
fn step(folder: &Path, settings: &[(&str, Value)]) -> (StepTemplate, Settings) {
    let applied = settings.iter().map(|(name, _)| {
        let target = Target::parse(name).unwrap();
        Applied { parameter: name.replace('.', "_"), name: (*name).to_owned(), target, argument: None }
    });
    let step = StepTemplate {
        command: ["python3", "train.py"].map(Template::parse).to_vec(),
        env: Vec::new(),
        cwd: folder.to_owned(),
        files: Vec::new(),
        apply: Apply { applied: applied.collect(), ..Apply::default() },
    };
    let settings = settings.iter().map(|(name, value)| (name.replace('.', "_"), value.clone())).collect();
    (step, settings)
}

fn shown_with(files: &[(&str, &str)], settings: &[(&str, Value)], baseline: &[(&str, Value)], is_gpu: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let (step, settings) = step(folder.path(), settings);
    let baseline: Settings = baseline.iter().map(|(name, value)| (name.replace('.', "_"), value.clone())).collect();
    let words = ["python3", "train.py"].map(str::to_owned);
    let baseline = (baseline.iter().next().is_some()).then_some(&baseline);
    let edits = edits(&step, &words, &settings, baseline, is_gpu);
    edits.iter().flat_map(Edit::shown).collect::<Vec<_>>().join("\n")
}

fn shown(script: &str, settings: &[(&str, Value)]) -> String {
    shown_with(&[("train.py", script)], settings, &[], true)
}

const PLAIN: &str = r#"import torch
from torch.utils.data import DataLoader

net = Net().cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
val = DataLoader(b, batch_size=100)
train = DataLoader(a, 32, shuffle=True, num_workers=args.workers, prefetch_factor=4)
torch.backends.cudnn.benchmark = False  # slow
for images, labels in train:
    out = net(images)
    err = F.cross_entropy(out, labels)
    opt.zero_grad()
    err.backward()
    opt.step()
print(net(images))
"#;

#[test]
fn a_plain_loop_is_told_line_by_line_in_its_own_words() {
    let all = shown(
        PLAIN,
        &[
            ("dataloader.batch_size", 256.into()),
            ("dataloader.num_workers", 8.into()),
            ("dataloader.prefetch_factor", 4.into()),
            ("dataloader.persistent_workers", true.into()),
            ("torch.precision", "fp16".into()),
            ("torch.compile", "reduce-overhead".into()),
            ("torch.channels_last", true.into()),
            ("torch.cudnn_benchmark", true.into()),
            ("torch.fused_optimizer", true.into()),
            ("torch.sdpa", "flash".into()),
            ("torch.checkpoint", true.into()),
        ],
    );
    insta::assert_snapshot!(all);
}

#[test]
fn a_loader_without_workers_loses_what_it_would_refuse() {
    let all = shown(PLAIN, &[("dataloader.num_workers", 0.into())]);
    let expected = "in DataLoader(...): num_workers=0 (instead of num_workers=args.workers, prefetch_factor=4)";
    assert_eq!(all, format!("train.py:7: {expected}"));
}

#[test]
fn a_loader_makes_the_pieces_of_a_batch() {
    let whole = [("dataloader.batch_size", Value::from(256)), ("torch.grad_accumulation", Value::from(4))];
    let all = shown(PLAIN, &whole);
    assert!(all.starts_with("train.py:7: in DataLoader(...): batch_size=64 (instead of batch_size=32)\n"), "{all}");
    for line in [
        "train.py:13: for the backward pass",
        "    (err / 4).backward()",
        "    if (step + 1) % 4 == 0:",
        "        opt.step()",
    ] {
        assert!(all.contains(line), "{line}\n{all}");
    }
    let all = shown(PLAIN, &[("torch.grad_accumulation", Value::from(4))]);
    assert!(all.starts_with("train.py:7: in DataLoader(...): batch_size=32 // 4"), "{all}");
}

#[test]
fn gradients_that_add_up_under_cuda_graphs_have_memory_outside_of_them() {
    let pieces = || ("torch.grad_accumulation", Value::from(4));
    let of_mode = |mode: &str| shown(PLAIN, &[pieces(), ("torch.compile", Value::from(mode))]);
    let own = PLAIN.replace("Net().cuda()", "torch.compile(Net().cuda(), mode='reduce-overhead')");
    for all in [of_mode("reduce-overhead"), of_mode("max-autotune"), shown(&own, &[pieces()])] {
        for line in [
            "for parameter in net.parameters():",
            "    parameter.grad = torch.zeros_like(parameter)",
            "    opt.zero_grad(set_to_none=False)",
        ] {
            assert!(all.contains(line), "{line}\n{all}");
        }
    }
    for all in [of_mode("default"), of_mode("max-autotune-no-cudagraphs"), shown(PLAIN, &[pieces()])] {
        assert!(all.contains("    opt.zero_grad()") && !all.contains("zeros_like"), "{all}");
    }
}

#[test]
fn what_the_baseline_does_already_is_not_told_again() {
    let before = [("dataloader.num_workers", Value::from(2)), ("torch.precision", "fp32".into())];
    let after = [("dataloader.num_workers", Value::from(4)), ("torch.precision", "fp32".into())];
    let files = [("train.py", PLAIN)];
    assert_eq!(shown_with(&files, &before, &before, true), "", "the winner is the baseline");
    let all = shown_with(&files, &after, &before, true);
    assert!(all.starts_with("train.py:7: in DataLoader(...): num_workers=4") && !all.contains("tf32"), "{all}");
    let stated = [("dataloader.batch_size", Value::from(64)), ("dataloader.num_workers", Value::from(2))];
    let after = [("dataloader.batch_size", Value::from(64)), ("dataloader.num_workers", Value::from(4))];
    let all = shown_with(&files, &after, &stated, true);
    assert!(all.contains("batch_size=64, num_workers=4"), "the text says 32, whatever the baseline says: {all}");
}

#[test]
fn what_a_script_cannot_do_by_itself_is_told_though_the_baseline_has_it() {
    let plain = "import torch\nloader = DataLoader(d, shuffle=True)\nloss = model(x)\nloss.backward()\n";
    let half = [("torch.precision", Value::from("bf16")), ("dataloader.num_workers", Value::from(0))];
    let other = [("torch.precision", Value::from("bf16")), ("dataloader.num_workers", Value::from(4))];
    let all = shown_with(&[("train.py", plain)], &other, &half, false);
    assert!(all.contains("with torch.autocast(\"cpu\", dtype=torch.bfloat16):"), "{all}");
    let own = plain.replace("loss = ", "with torch.autocast('cpu', dtype=DTYPE):\n    loss = ");
    assert!(!shown_with(&[("train.py", &own)], &other, &half, false).contains("dtype"), "it has that already");
}

#[test]
fn what_the_script_has_is_changed_where_it_stands() {
    let script = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\nmodel = torch.compile(Net(), mode='default')\n\
                  scaler = torch.cuda.amp.GradScaler()\nwith torch.autocast('cuda', dtype=torch.float16):\n    loss = model(x)\n\
                  scaler.scale(loss).backward()\n";
    let bf16 = shown(script, &[("torch.precision", "bf16".into()), ("torch.compile", "max-autotune".into())]);
    insta::assert_snapshot!(bf16);
    let off = shown(script, &[("torch.compile", "off".into())]);
    assert_eq!(off, "train.py:3: leave out torch.compile(...)");
    let fp16 = shown(script, &[("torch.precision", "fp16".into())]);
    assert!(!fp16.contains("scaler"), "it scales already: {fp16}");
}

#[test]
fn frameworks_are_told_by_their_own_arguments() {
    let hf = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(\n    output_dir='x',\n    \
              per_device_train_batch_size=8,\n)\nTrainer(model=m, args=args).train()\n";
    let settings = [
        ("dataloader.batch_size", Value::from(64)),
        ("dataloader.num_workers", Value::from(2)),
        ("torch.precision", "bf16".into()),
        ("torch.fused_optimizer", true.into()),
        ("torch.sdpa", "flash".into()),
    ];
    let parsed = "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)\n";
    let lightning = "import lightning as L\nimport torch\ntrain = DataLoader(d, batch_size=32, shuffle=True)\n\
                     trainer = L.Trainer(max_epochs=2, precision='32-true')\n";
    let accelerate = "from accelerate import Accelerator\nimport torch\naccelerator = Accelerator()\n\
                      loader = DataLoader(d, batch_size=BATCH, shuffle=True)\nloss = F.mse_loss(model(batch['x']), y)\naccelerator.backward(loss)\n";
    let all = [hf, parsed, lightning, accelerate].map(|script| shown(script, &settings));
    insta::assert_snapshot!(all.join("\n---\n"));
    let on_processor = shown_with(&[("train.py", hf)], &settings[2..3], &[], false);
    assert_eq!(on_processor, "train.py:2: in TrainingArguments(...): bf16=True, fp16=False, use_cpu=True");
}

#[test]
fn a_loader_in_another_file_of_the_project_is_found_there() {
    let files = [
        ("train.py", "import torch\nfrom data import loaders\nimport gone\n"),
        ("data.py", "def loaders(**kw):\n    return DataLoader(d, shuffle=True, **kw)\n"),
    ];
    let all = shown_with(&files, &[("dataloader.num_workers", 3.into())], &[], true);
    assert_eq!(all, "data.py:2: in DataLoader(...), and out of kw: num_workers=3");
}

#[test]
fn a_script_that_cannot_be_read_is_told_without_places() {
    let settings = [("dataloader.num_workers", Value::from(3)), ("torch.precision", "bf16".into())];
    let all = shown_with(&[], &settings, &[], false);
    let around = "around the forward pass and the loss: with torch.autocast(\"cpu\", dtype=torch.bfloat16):";
    assert_eq!(all, format!("in DataLoader: num_workers=3\n{around}"));
}

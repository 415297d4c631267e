//! The search spaces that are shipped.

/// The shipped spaces, by name.
pub const SHIPPED_SPACES: &[(&str, &str)] = &[
    ("accelerate", include_str!("../../search-spaces/accelerate.toml")),
    ("batch", include_str!("../../search-spaces/batch.toml")),
    ("dataloader", include_str!("../../search-spaces/dataloader.toml")),
    ("ddp", include_str!("../../search-spaces/ddp.toml")),
    ("deepspeed", include_str!("../../search-spaces/deepspeed.toml")),
    ("deepspeed-parallel", include_str!("../../search-spaces/deepspeed-parallel.toml")),
    ("fsdp", include_str!("../../search-spaces/fsdp.toml")),
    ("huggingface", include_str!("../../search-spaces/huggingface.toml")),
    ("jax", include_str!("../../search-spaces/jax.toml")),
    ("keras", include_str!("../../search-spaces/keras.toml")),
    ("lightning", include_str!("../../search-spaces/lightning.toml")),
    ("megatron", include_str!("../../search-spaces/megatron.toml")),
    ("nccl", include_str!("../../search-spaces/nccl.toml")),
    ("precision", include_str!("../../search-spaces/precision.toml")),
    ("torch", include_str!("../../search-spaces/torch.toml")),
    ("torch-adapter", include_str!("../../search-spaces/torch-adapter.toml")),
    ("torchrun", include_str!("../../search-spaces/torchrun.toml")),
    ("torchtitan", include_str!("../../search-spaces/torchtitan.toml")),
];

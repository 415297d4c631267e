"""Large matrix products in full precision on a processor that does them in half of it far faster."""

import torch

from common import Ready, loader_of, options, perceptron, train

INPUTS = 1024


class Cast(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        with torch.autocast(inputs.device.type, torch.bfloat16):
            outputs = self.model(inputs)
        return outputs.float()


def main():
    parser = options(__doc__, batch_size=256, width=1024)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="the remedy is bf16")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    samples = Ready(8192, INPUTS)
    model = perceptron(INPUTS, args.width)
    train(args, loader_of(samples, args, shuffle=True), Cast(model) if args.precision == "bf16" else model)


if __name__ == "__main__":
    main()

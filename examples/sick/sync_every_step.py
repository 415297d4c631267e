"""After every step the script asks for numbers one by one: on a GPU each question waits for all work that was started."""

from torch.nn import functional as F

from common import Ready, loader_of, options, perceptron, train

INPUTS = 256


class Metrics:
    """Accuracy, losses and gradient norms, the way they are often written."""

    def __init__(self, every):
        self.every = every
        self.correct = 0
        self.losses = []

    def update(self, step, model, outputs, labels, _loss):
        if step % self.every != 0:
            return
        for output, label in zip(outputs.detach(), labels):
            self.correct += output.argmax().item() == label.item()
        self.losses = [loss.item() for loss in F.cross_entropy(outputs.detach(), labels, reduction="none")]
        self.norms = {name: parameter.grad.norm().item() for name, parameter in model.named_parameters()}


def main():
    parser = options(__doc__, batch_size=256, width=256)
    parser.add_argument("--metrics-every", type=int, default=1, help="steps; the remedy is 100")
    args = parser.parse_args()
    metrics = Metrics(args.metrics_every)
    train(args, loader_of(Ready(8192, INPUTS), args, shuffle=True), perceptron(INPUTS, args.width), metrics.update)


if __name__ == "__main__":
    main()

"""Reads a folder of event files with TensorBoard, and prints the scalars, hyperparameters and metrics."""

import sys

from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

folder = sys.argv[1]
accumulator = EventAccumulator(folder + "/events.out.tfevents.0000000000.gputune")
accumulator.Reload()
for tag in sorted(accumulator.Tags()["scalars"]):
    points = ", ".join(f"{event.step}: {event.value:g}" for event in accumulator.Scalars(tag))
    print(f"{tag}: {points}")

multiplexer = plugin_event_multiplexer.EventMultiplexer()
multiplexer.AddRunsFromDirectory(folder)
multiplexer.Reload()
context = TBContext(logdir=folder, multiplexer=multiplexer, data_provider=MultiplexerDataProvider(multiplexer, folder))
backend = backend_context.Context(context)
request = RequestContext()
experiment = get_experiment.Handler(request, backend, "", api_pb2.GetExperimentRequest()).run()
for info in experiment.hparam_infos:
    values = [str(value.WhichOneof("kind")) for value in info.domain_discrete.values]
    print(f"hparam {info.name}: {api_pb2.DataType.Name(info.type)} {values}")
print("metrics:", ", ".join(f"{info.name.group}/{info.name.tag}" for info in experiment.metric_infos))
wanted = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=100)
wanted.allowed_statuses.extend([api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE])
for info in experiment.metric_infos:
    wanted.col_params.add(metric=info.name)
groups = list_session_groups.Handler(request, backend, "", wanted).run().session_groups
for group in sorted(groups, key=lambda group: group.sessions[0].name):
    for session in group.sessions:
        hparams = {name: value for name, value in sorted(group.hparams.items())}
        shown = " ".join(f"{name}={getattr(value, value.WhichOneof('kind'))}" for name, value in hparams.items())
        metrics = " ".join(f"{value.name.tag}={value.value:g}" for value in session.metric_values)
        print(f"{session.name} {api_pb2.Status.Name(session.status)}: {shown} | {metrics}")

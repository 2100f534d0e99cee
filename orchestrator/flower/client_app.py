"""What Flower runs at a site: hands a message to the site's resident worker, and its reply back.

A SuperNode starts a process for every message. This one therefore imports nothing of the training: graph, network and
state live in the worker (`safegnn site`), which listens on a Unix socket that only its owner may open. It reads nothing
of what it carries, and has no key.

The node says who it is and where its worker listens:
``flower-supernode --node-config 'site="hospital-a" socket="/var/lib/safegnn/worker.sock"'``.
"""

from __future__ import annotations

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from orchestrator.flower.parcel import failure, packed, unpacked
from orchestrator.site import framing

__all__ = ["app"]

app = ClientApp()


@app.query("site")
def site(message: Message, context: Context) -> Message:
    """Which site this node is."""
    return Message(packed(str(context.node_config.get("site", "")).encode()), reply_to=message)


@app.query()
def pass_on(message: Message, context: Context) -> Message:
    """The worker's reply to a request, which waits for it as long as the message lives."""
    return Message(_reply(message, context), reply_to=message)


def _reply(message: Message, context: Context) -> RecordDict:
    path = context.node_config.get("socket")
    if not isinstance(path, str):
        return failure("lost", "its SuperNode was started without socket=... in --node-config")
    try:
        return packed(framing.ask(path, unpacked(message.content), message.metadata.ttl))
    except TimeoutError:
        return failure("silent", f"its worker gave no reply within {message.metadata.ttl:g} s")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return failure("lost", f"its worker is not there: {said}")

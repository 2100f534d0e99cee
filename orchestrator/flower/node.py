"""A site's task runner: carries out the tasks of its SuperNode with the ClientApp that the site has installed.

Parties: the site's SuperNode, which takes messages from the coordinator's SuperLink; this process, which the SuperNode
knows as its SuperExec (``flower-supernode --isolation process``). Flower's own runner installs and runs whatever app
the coordinator ships, in a new process for every message. This one never unpacks that app: it runs the installed
`client_app`, so that a coordinator's code has no place at a site; and it stays alive, so that no message waits for a
process to start. Between SuperNode and SuperLink nothing changes: authentication, TLS, retries and heartbeats are
Flower's.

The SuperNode's runtime API listens on the site's own loopback address. Whoever has the secret, a file that both
programs are given, may take its tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import httpx
from flwr.app import Context, Message
from flwr.app.error import Error
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from orchestrator.errors import PeerLostError

__all__ = ["TaskRunner"]

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_POLL_SEC = 0.1


class TaskRunner:
    """Takes one task after another from a SuperNode."""

    def __init__(
        self, address: str, app: ClientApp, secret: bytes | None, wait: Callable[[float], None] = time.sleep
    ) -> None:
        """
        Args:
            address: of the SuperNode's runtime API, host:port, on this machine.
            app: what to run.
            secret: what the SuperNode's ``--superexec-auth-secret-file`` holds; None: it asks for none.
            wait: called between two questions for a task.
        """
        self._address, self._app, self._wait = address, app, wait
        auth = [SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={_ACQUIRE})] if secret else []
        self._tasks = self._client("SuperExec", auth)

    def run(self) -> None:
        """Carry out tasks until the process is told to end. A SuperNode that is away is waited for.

        Raises:
            PeerLostError: the SuperNode refuses to give tasks, say for another secret.
        """
        while True:
            if not self._step():
                self._wait(_POLL_SEC)

    def _step(self) -> bool:
        """Carry out a task if there is one; returns whether there was."""
        try:
            task = self._tasks.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        except httpx.HTTPStatusError as error:
            reason = f"{self._address}: gives no tasks: HTTP status {error.response.status_code}; see --secret"
            raise PeerLostError("the SuperNode", "flower", 0, reason) from None
        except httpx.HTTPError:
            return False
        if not task.token:
            return False
        with suppress(httpx.HTTPError):  # the SuperNode has gone with the task, and will have others when it is back
            self._carry_out(task.token)
        return True

    def _carry_out(self, token: str) -> None:
        client = self._client("flwr-clientapp", [RuntimeTokenHttpInterceptor(token)])
        heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heartbeat.start()
        context: Context | None = None
        status, details = SubStatus.FAILED, "the task's message could not be read"
        try:
            message, context, _, _ = pull_task_input(
                client
            )  # the last one is the coordinator's code, which stays packed
            reply, status, details = self._answer(message, context)
            push_message(client, reply, context)
        finally:
            heartbeat.stop()
            push_task_output(client, context, status, details)
            client.close()

    def _answer(self, message: Message, context: Context) -> tuple[Message, str, str]:
        try:
            return self._app(message=message, context=context), SubStatus.COMPLETED, ""
        except Exception as error:  # its text may hold what is the site's own
            failed = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, type(error).__name__)
            return Message(failed, reply_to=message), SubStatus.FAILED, type(error).__name__

    def _client(self, name: str, interceptors: list[ProtobufClientInterceptor]) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=True,  # the loopback address
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name=name), *interceptors],
            retry_invoker=make_simple_http_retry_invoker(),
        )

"""The command that runs the server."""

from __future__ import annotations

import os

import click

from learnloop.cli.output import json_option, open_workspace, printed_json, say

_LOG_LEVELS = ("critical", "error", "warning", "info", "debug")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8700, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option("--server", "seed_port", type=click.IntRange(0, 65535), hidden=True, help="As --port, and says so.")
@click.option("--otlp-port", type=click.IntRange(0, 65535), help="Listen there too; exporters expect 4318.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A further name by which clients call it.")
@click.option("--allow-origin", multiple=True, metavar="ORIGIN", help="A web origin whose pages may call it.")
@click.option("--gateway", metavar="URL", help="Pass /gateway/... on to this base URL of a model, and record it.")
@click.option("--gateway-key-env", metavar="NAME", help="The variable with the key of that URL.")
@click.option("--learning/--no-learning", default=True, help="Whether policies learn beside the server.")
@click.option("--log-level", default="warning", show_default=True, type=click.Choice(_LOG_LEVELS), help="What to log.")
@json_option
def serve(
    host: str,
    port: int,
    seed_port: int | None,
    otlp_port: int | None,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    gateway: str | None,
    gateway_key_env: str | None,
    learning: bool,
    log_level: str,
) -> None:
    """Serve the HTTP API until Ctrl-C.

    On this machine alone no key is needed until one is made (learnloop keys create); any other address needs one.

    \b
    Examples:
      learnloop serve
      learnloop serve --host 0.0.0.0 --allow-host loop.example.com --otlp-port 4318
      learnloop serve --gateway https://api.openai.com/v1
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # read once, when numpy is imported below
        os.environ.setdefault(name, "1")  # a row is too little to share, and threads that wait for each other stall it
    from learnloop.compat.groups import COMPATIBLE_GROUPS
    from learnloop.serve import GatewayOptions, Listening, ServeOptions, make_gateway
    from learnloop.serve import serve as run

    if gateway_key_env is not None and gateway is None:
        raise click.UsageError("--gateway-key-env says whose key is sent; name the model's base URL with --gateway")
    routes = [*COMPATIBLE_GROUPS]
    if gateway is not None:
        routes.append(make_gateway(GatewayOptions(upstream=gateway, key_env=gateway_key_env)))

    options = ServeOptions(
        host=host,
        port=port if seed_port is None else seed_port,
        otlp_port=otlp_port,
        allow_hosts=allow_host,
        allow_origins=allow_origin,
        learning=learning,
    )
    _log_to_stderr(log_level)

    def tell(listening: Listening) -> None:
        if not printed_json("learnloop.serve/v1", urls=listening.urls):
            if seed_port is not None:  # seed 1's clients wait for this line
                say(f"Server started on port {listening.sockets[0].getsockname()[1]}")
            for url in listening.urls:
                say(f"Listening on {url}")
            if gateway is not None:
                say(f"Agents' base URL: {listening.urls[0]}/gateway, passed on to {gateway}", error=True)
        say("Ctrl-C stops it, letting requests end; a second one stops at once.", error=True)

    run(open_workspace(create=True), options, *routes, on_ready=tell)


def _log_to_stderr(level: str) -> None:
    import logging

    logging.basicConfig(level="WARNING", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for name in ("learnloop", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())

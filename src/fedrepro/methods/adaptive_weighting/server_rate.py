"""The server learning rate of AAggFF's released code (discrepancy 13)."""

from dataclasses import replace

from fedrepro.engine.context import Context

GROWING = "the server's learning rate is divided by what the clients' one is multiplied by"


def growing(ctx: Context) -> Context:
    """``ctx`` with a server learning rate that grows as the clients' schedule decays.

    Idempotent, so that both a wrapper and the wrapped method may apply it.
    """
    growth = ctx.schedule(0) / ctx.schedule(ctx.round)
    return replace(ctx, server_lr=ctx.server_lr * growth, schedule=lambda round: 1.0)

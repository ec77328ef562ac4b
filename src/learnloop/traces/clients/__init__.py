"""Records what programs ask of models, through the clients that they use."""

from learnloop.traces.clients.wrapping import wrap

__all__ = ["wrap"]

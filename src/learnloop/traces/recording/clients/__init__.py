"""Records what programs ask of models, through the clients that they use."""

from learnloop.traces.recording.clients.wrapping import wrap

__all__ = ["wrap"]

"""Our own table of attribute names: what each means to us, and by which names it goes.

The GenAI conventions are in development and were renamed more than once; OpenInference and OpenLLMetry (Traceloop) have
names of their own. The first name that a span carries counts; what the others say is kept as an attribute.

Source: open-telemetry/semantic-conventions-genai and its predecessors, OpenInference's and OpenLLMetry's conventions.
"""

from __future__ import annotations

from collections.abc import Mapping

TASK = "task_id"
ATTEMPT = "attempt"

SLOTS: Mapping[str, tuple[str, ...]] = {
    "operation": ("gen_ai.operation.name",),
    "span_kind": ("openinference.span.kind",),
    "traceloop_kind": ("traceloop.span.kind",),
    "request_type": ("llm.request.type",),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    "model": ("gen_ai.response.model", "llm.model_name", "llm.response.model", "embedding.model_name"),
    "request_model": ("gen_ai.request.model", "llm.request.model"),
    "response_id": ("gen_ai.response.id", "llm.response.id"),
    "finish_reasons": (
        "gen_ai.response.finish_reasons",
        "gen_ai.response.finish_reason",
        "llm.finish_reason",
        "llm.response.finish_reason",
    ),
    "conversation_id": (
        "gen_ai.conversation.id",
        "session.id",
        "langfuse.session.id",
        "traceloop.association.properties.session_id",
    ),
    "user_id": ("user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id"),
    "agent": ("gen_ai.agent.name", "agent.name"),
    "workflow": ("gen_ai.workflow.name", "traceloop.workflow.name"),
    "entity": ("traceloop.entity.name",),
    "tool": ("gen_ai.tool.name", "tool.name"),
    "call_id": ("gen_ai.tool.call.id", "tool_call.id", "tool.id"),
    "tool_input": ("gen_ai.tool.call.arguments",),
    "tool_output": ("gen_ai.tool.call.result",),
    "input": ("gen_ai.input.messages",),
    "output": ("gen_ai.output.messages",),
    "system": ("gen_ai.system_instructions",),
    "input_value": ("input.value", "traceloop.entity.input"),
    "output_value": ("output.value", "traceloop.entity.output"),
    "prompt_text": ("gen_ai.prompt",),
    "completion_text": ("gen_ai.completion",),
    "tools": ("gen_ai.tool.definitions",),
    "parameters": ("llm.invocation_parameters",),
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "total_tokens": ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total"),
    "cached_input_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "cache_write_input_tokens": (
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "llm.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
    "cost_usd": ("llm.cost.total", "gen_ai.usage.cost"),
    "error_type": ("error.type",),
    "prompt_token_ids": ("prompt_token_ids",),
    "completion_token_ids": ("response_token_ids", "completion_token_ids"),
    "metadata": ("metadata",),
    TASK: ("learnloop.task_id", "task.id", "task_id", "traceloop.association.properties.task_id"),
    ATTEMPT: ("learnloop.attempt", "task.attempt", "traceloop.association.properties.attempt"),
}
"""The names by which each thing goes, the preferred one first."""

NAMES: Mapping[str, tuple[str, int]] = {
    name: (slot, rank) for slot, names in SLOTS.items() for rank, name in enumerate(names)
}

USAGE = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "reasoning_tokens",
)

GROUPS: Mapping[str, str] = {
    "llm.input_messages.": "llm_input",
    "llm.output_messages.": "llm_output",
    "llm.tools.": "llm_tools",
    "llm.prompts.": "llm_prompts",
    "llm.choices.": "llm_choices",
    "llm.request.": "functions",
    "gen_ai.prompt.": "prompt",
    "gen_ai.completion.": "completion",
    "gen_ai.request.": "request",
    "agentlightning.reward.": "lightning_rewards",
    "agentlightning.link.": "lightning_links",
    "annotations.": "annotations",
    "evaluations.": "evaluations",
    "trace.annotations.": "trace_annotations",
    "trace.evaluations.": "trace_evaluations",
    "annotation.": "annotation",
    "evaluation.": "evaluation",
}
"""Lists and objects that are spread over attributes, by their prefix of one or two words."""

OPENINFERENCE_KINDS: Mapping[str, str] = {
    "LLM": "chat",
    "TOOL": "execute_tool",
    "AGENT": "invoke_agent",
    "RETRIEVER": "retrieval",
    "EMBEDDING": "embeddings",
    "RERANKER": "rerank",
    "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluate",
}
"""The operation of each kind of span; the others (CHAIN, PROMPT, DECISION, UNKNOWN) are ``custom``."""

TRACELOOP_KINDS: Mapping[str, str] = {"workflow": "invoke_workflow", "agent": "invoke_agent", "tool": "execute_tool"}
REQUEST_TYPES: Mapping[str, str] = {
    "chat": "chat",
    "completion": "text_completion",
    "embedding": "embeddings",
    "rerank": "rerank",
}
SPAN_KINDS: Mapping[int, str] = {2: "server", 3: "client", 4: "producer", 5: "consumer"}

MESSAGE_EVENTS: Mapping[str, str] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "choice",
}
"""Events of older conventions that carry one message each, by its role."""
DETAILS_EVENT = "gen_ai.client.inference.operation.details"
EVALUATION_EVENT = "gen_ai.evaluation.result"
CONTENT_EVENTS = ("gen_ai.content.prompt", "gen_ai.content.completion", DETAILS_EVENT)
"""Events whose attributes are what others write on the span itself."""

RESERVED = frozenset(
    (
        "input", "output", "input_offset", "usage", "request", "tools", "provider", "finish_reasons", "response_id",
        "conversation_id", "token_ids", "logprobs", "cost_usd", "call_id", "duration_unknown", "time_unknown", "agent",
        "user_id", "task_id", "attempt", "partial", "resource", "scope", "events", "links", "kind", "remote_parent",
        "start_nanos", "clock_error", "message_events", "trace_state",
    )
)  # fmt: skip
"""Attributes that mean something to us: one that a sender happens to call so is kept as ``otel.NAME``."""

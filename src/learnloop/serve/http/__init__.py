"""The parts of HTTP that FastAPI and uvicorn lack: limits, problems, conditions, idempotency, many items a request."""

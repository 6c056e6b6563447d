"""The routes of the server itself; systems may add their own."""

from typing import Any

from farhand.model.errors import Problem
from farhand.protocol import agent as a
from farhand.protocol import client as c
from farhand.server import agent_routes, job_routes, manage_routes, pages, register, result_routes
from farhand.server.routes import Route

AGENT = "agent.work"


def _list(item: Any) -> dict[int, Any]:
    return {200: [item]}


def routes() -> list[Route]:
    """Every route of the server, in the order the documents show them."""
    return [*_general(), *_agent(), *_jobs(), *_printers(), *_agents(), *_keys()]


def _general() -> list[Route]:
    return [
        Route(method="GET", path="/health", handler=pages.health, grant=None, tag="general",
              summary="Whether the server is up", replies={200: c.HealthReply}),
        Route(method="GET", path="/openapi.json", handler=pages.openapi, grant=None, tag="general",
              summary="This description of the API", replies={200: dict}),
        Route(method="GET", path="/metrics", handler=pages.metrics, grant="metrics.read", tag="general",
              summary="Figures for Prometheus", replies={200: str}),
        Route(method="GET", path="/audit", handler=manage_routes.audit, grant="audit.read", tag="general",
              summary="Who changed what", query=("limit", "cursor"), replies=_list(c.AuditView)),
        Route(method="GET", path="/problems/{code}", handler=pages.problem, grant=None, tag="general",
              summary="What an error code means", replies={200: c.CodeView}),
    ]  # fmt: skip


def _agent() -> list[Route]:
    held = {200: a.HeldReply}
    job = "/agent/jobs/{id}"
    return [
        Route(method="POST", path="/agent/register", handler=register.register, grant="any key", tag="agent",
              summary="Present an agent and its printers", request=a.RegisterRequest,
              replies={200: a.RegisterReply}),
        Route(method="GET", path="/agent/jobs", handler=agent_routes.poll, grant=AGENT, tag="agent",
              held=True, summary="Wait for one job", replies={200: a.SeedClaimReply, 204: None}),
        Route(method="POST", path="/agent/claim", handler=agent_routes.claim, grant=AGENT, tag="agent",
              held=True, summary="Claim work for free lanes", request=a.ClaimRequest,
              replies={200: a.ClaimReply}),
        Route(method="GET", path=f"{job}/payload", handler=agent_routes.payload, grant=AGENT, tag="agent",
              summary="The bytes of a claimed job", replies={200: bytes}),
        Route(method="POST", path=f"{job}/start", handler=agent_routes.start, grant=AGENT, tag="agent",
              summary="Begin the work", request=a.HeldRequest, request_optional=True, replies=held),
        Route(method="POST", path=f"{job}/heartbeat", handler=agent_routes.heartbeat, grant=AGENT,
              tag="agent", summary="Renew the lease and report progress", request=a.HeldRequest,
              request_optional=True, replies=held),
        Route(method="POST", path=f"{job}/release", handler=agent_routes.release, grant=AGENT, tag="agent",
              summary="Give the work back", request=a.ReleaseRequest, request_optional=True,
              replies={200: a.StateReply}),
        Route(method="POST", path=f"{job}/refuse", handler=agent_routes.refuse, grant=AGENT, tag="agent",
              summary="Decline the work", request=a.ReleaseRequest, request_optional=True,
              replies={200: a.StateReply}),
        Route(method="POST", path=f"{job}/result", handler=agent_routes.result, grant=AGENT, tag="agent",
              held=True, summary="Report how the work ended", request=a.ResultRequest,
              replies={200: a.ResultReply}),
        Route(method="PUT", path=f"{job}/result/body", handler=result_routes.put_body, grant=AGENT,
              tag="agent", summary="Put the bytes of a large result apart", request=bytes,
              replies={200: a.ResultBodyReply}),
        Route(method="POST", path="/agent/results", handler=agent_routes.results, grant=AGENT, tag="agent",
              held=True, summary="Report many results at once", request=a.ResultsRequest,
              replies={200: a.ResultsReply}),
    ]  # fmt: skip


def _jobs() -> list[Route]:
    made = {201: c.SubmitReply, 200: c.SubmitReply, 202: c.SubmitReply}
    return [
        Route(method="POST", path="/jobs", handler=job_routes.submit, grant="jobs.submit", keyed=True,
              held=True, summary="Submit a job", request=c.SubmitPrint, replies=made),
        Route(method="GET", path="/jobs", handler=job_routes.listing, grant="jobs.read",
              summary="List jobs, newest first", query=job_routes.LIST_QUERY, replies=_list(c.JobView)),
        Route(method="POST", path="/jobs/batch", handler=job_routes.submit_batch, grant="jobs.submit",
              summary="Submit many jobs", request=c.BatchRequest, replies={200: [c.SubmitReply, Problem]}),
        Route(method="GET", path="/jobs/{id}", handler=job_routes.show, grant="jobs.read", held=True,
              summary="Show a job, or wait until it changes", replies={200: c.JobView}),
        Route(method="DELETE", path="/jobs/{id}", handler=job_routes.cancel, grant="jobs.manage",
              summary="Cancel a job", request=c.CancelRequest, request_optional=True,
              replies={200: c.JobView}),
        Route(method="GET", path="/jobs/{id}/events", handler=job_routes.events, grant="jobs.read",
              summary="A job's trail", query=("limit", "cursor"), replies=_list(c.EventView)),
        Route(method="GET", path="/jobs/{id}/result", handler=result_routes.show, grant="jobs.read",
              held=True, summary="What a job came to", replies={200: Any}),
        Route(method="POST", path="/jobs/{id}/retry", handler=job_routes.retry, grant="jobs.manage",
              summary="Submit a finished or uncertain job again", replies={201: c.SubmitReply}),
        Route(method="POST", path="/jobs/{id}/resolve", handler=job_routes.resolve, grant="jobs.manage",
              summary="Say how an uncertain job ended", request=c.ResolveRequest, replies={200: c.JobView}),
    ]  # fmt: skip


def _printers() -> list[Route]:
    return [
        Route(method="GET", path="/printers", handler=manage_routes.printers, grant="printers.read",
              tag="printers", summary="List printers", query=("limit", "cursor", "gone"),
              replies=_list(c.PrinterView)),
        Route(method="GET", path="/printers/{id}", handler=manage_routes.printer, grant="printers.read",
              tag="printers", summary="Show a printer", replies={200: c.PrinterView}),
    ]  # fmt: skip


def _agents() -> list[Route]:
    manage, one, shown = "agents.manage", "/agents/{id}", {200: c.AgentView}
    return [
        Route(method="GET", path="/agents", handler=manage_routes.agents, grant="agents.read", tag="agents",
              summary="List agents", query=("limit", "cursor"), replies=_list(c.AgentView)),
        Route(method="POST", path="/agents", handler=manage_routes.issue, grant=manage, tag="agents",
              summary="Issue an agent and its key", request=c.IssueRequest, replies={201: c.IssueReply}),
        Route(method="GET", path="/agents/pending", handler=manage_routes.pending, grant="agents.read",
              tag="agents", summary="List agents that wait for approval", replies=_list(c.PendingView)),
        Route(method="GET", path=one, handler=manage_routes.agent, grant="agents.read", tag="agents",
              summary="Show an agent", replies=shown),
        Route(method="POST", path=f"{one}/approve", handler=manage_routes.approve, grant=manage, tag="agents",
              summary="Let a waiting agent in", request=c.ApproveRequest, replies=shown),
        Route(method="POST", path=f"{one}/revoke", handler=manage_routes.revoke, grant=manage, tag="agents",
              summary="Throw an agent out", replies=shown),
        Route(method="POST", path=f"{one}/pause", handler=manage_routes.pause, grant=manage, tag="agents",
              summary="Give an agent no new work", replies=shown),
        Route(method="POST", path=f"{one}/drain", handler=manage_routes.drain, grant=manage, tag="agents",
              summary="Let an agent finish what it has", replies=shown),
        Route(method="POST", path=f"{one}/resume", handler=manage_routes.resume, grant=manage, tag="agents",
              summary="Give an agent work again", replies=shown),
        Route(method="PUT", path=f"{one}/grants", handler=manage_routes.set_grants, grant=manage,
              tag="agents", summary="Replace an agent's grants", request=c.GrantsRequest, replies=shown),
        Route(method="PUT", path=f"{one}/signing", handler=manage_routes.set_signing, grant=manage,
              tag="agents", summary="Set the key that an agent signs with", request=c.SigningRequest,
              replies=shown),
    ]  # fmt: skip


def _keys() -> list[Route]:
    return [
        Route(method="POST", path="/keys", handler=manage_routes.create_key, grant="keys.manage", tag="keys",
              summary="Make a client key", request=c.KeyRequest, replies={201: c.KeyReply}),
        Route(method="GET", path="/keys", handler=manage_routes.keys, grant="keys.manage", tag="keys",
              summary="List client keys", replies=_list(c.KeyView)),
        Route(method="DELETE", path="/keys/{id}", handler=manage_routes.revoke_key, grant="keys.manage",
              tag="keys", summary="Revoke a client key", replies={200: c.KeyView}),
    ]  # fmt: skip

# The agent of a Kubernetes cluster, without PyTorch: it decides with NumPy, and learns `set` policies.
# In the root of a clone:  docker build -f deploy/images/agent.Dockerfile -t fedl2-agent:0.1.0 .
FROM python:3.11.13-slim-bookworm AS build
# The simulator's twin is compiled here; the compiler stays behind.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -r /var/lib/apt/lists/*
WORKDIR /src
RUN python -m venv --without-pip /opt/fedl2
COPY constraints.txt deploy/images/agent-requirements.txt ./
RUN python -m pip --python /opt/fedl2/bin/python install --no-cache-dir --no-compile \
      -c constraints.txt -r agent-requirements.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY foundation ./foundation
COPY policy_net ./policy_net
COPY elastic_runtime ./elastic_runtime
COPY cluster_agent ./cluster_agent
COPY global_learner ./global_learner
RUN python -m pip --python /opt/fedl2/bin/python install --no-cache-dir --no-compile --no-deps .
# Packages' own tests, and the client's second half, which nobody imports: a fifth of all.
RUN find /opt/fedl2/lib -type d -name tests -prune -exec rm -r {} + \
 && rm -r /opt/fedl2/lib/python3.11/site-packages/kubernetes/aio
# A root that nobody writes to has to have bytecode already; and an image that lacks something is not built. Isolated (-I):
# what lies in this folder is not what runs.
RUN /opt/fedl2/bin/python -I -c "import cluster_agent.agent, cluster_agent.backends.kubernetes.backend, kubernetes.client, kubernetes.config, dp_accounting" \
 && /opt/fedl2/bin/python -I -c "from policy_net.twin.library import library; library()"

FROM python:3.11.13-slim-bookworm
COPY --from=build /opt/fedl2 /opt/fedl2
ENV PATH=/opt/fedl2/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["cluster-agent"]

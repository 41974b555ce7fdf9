# An elastic job: its coordinator and its tasks. Images of tasks that need more may begin with this one.
# In the root of a clone:  docker build -f deploy/images/runtime.Dockerfile -t fedl2-runtime:0.1.0 .
FROM python:3.11.13-slim-bookworm AS build
# PyTorch comes from an index of CPU wheels where one is named, else from the default index.
ARG TORCH_INDEX=
WORKDIR /src
RUN python -m venv --without-pip /opt/fedl2
COPY constraints.txt deploy/images/runtime-requirements.txt ./
RUN python -m pip --python /opt/fedl2/bin/python install --no-cache-dir --no-compile \
      ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -c constraints.txt torch
RUN python -m pip --python /opt/fedl2/bin/python install --no-cache-dir --no-compile \
      -c constraints.txt -r runtime-requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY foundation ./foundation
COPY policy_net ./policy_net
COPY elastic_runtime ./elastic_runtime
COPY cluster_agent ./cluster_agent
COPY global_learner ./global_learner
RUN python -m pip --python /opt/fedl2/bin/python install --no-cache-dir --no-compile --no-deps .
# A root that nobody writes to has to have bytecode already; and an image that lacks something is not built. Isolated (-I):
# what lies in this folder is not what runs.
RUN /opt/fedl2/bin/python -I -c "import elastic_runtime.coordinator.__main__, elastic_runtime.worker.script_guards"

FROM python:3.11.13-slim-bookworm
COPY --from=build /opt/fedl2 /opt/fedl2
ENV PATH=/opt/fedl2/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["elastic-run"]

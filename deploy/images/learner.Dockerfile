# A fleet's learner, and policyctl.
# In the root of a clone:  docker build -f deploy/images/learner.Dockerfile -t fedl2-learner:0.1.0 .
FROM python:3.11.13-slim-bookworm AS build
# The simulator's twin is compiled here; the compiler stays behind.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -r /var/lib/apt/lists/*
WORKDIR /src
RUN python -m venv --without-pip /opt/fedl2
COPY constraints.txt deploy/images/learner-requirements.txt ./
RUN python -m pip --python /opt/fedl2/bin/python install --no-cache-dir --no-compile \
      -c constraints.txt -r learner-requirements.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY foundation ./foundation
COPY policy_net ./policy_net
COPY elastic_runtime ./elastic_runtime
COPY cluster_agent ./cluster_agent
COPY global_learner ./global_learner
RUN python -m pip --python /opt/fedl2/bin/python install --no-cache-dir --no-compile --no-deps .
# Packages' own tests, which nobody imports.
RUN find /opt/fedl2/lib -type d -name tests -prune -exec rm -r {} +
# A root that nobody writes to has to have bytecode already; and an image that lacks something is not built. Isolated (-I):
# what lies in this folder is not what runs.
RUN /opt/fedl2/bin/python -I -c "import global_learner.cli, global_learner.service.server, psycopg, dp_accounting" \
 && /opt/fedl2/bin/python -I -c "from policy_net.twin.library import library; library()"

FROM python:3.11.13-slim-bookworm
COPY --from=build /opt/fedl2 /opt/fedl2
ENV PATH=/opt/fedl2/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["global-learner"]

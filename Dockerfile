# One member. docker-compose.yml runs three of them; docs/operations.md explains the variables, and
# SECURITY.md what an image is made of and how it is pinned.

# `tests/supply/lock --base` writes the digest that this name has today behind it. Another base:
# docker build --build-arg BASE_IMAGE=python:3.11-slim@sha256:...
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS build
ARG BASE_IMAGE
# A build on a name without a digest says so, and with `--build-arg PINNED=yes` it fails. What an
# image was built on is in its label org.opencontainers.image.base.name.
ARG PINNED=no
RUN case "$BASE_IMAGE" in \
        *@sha256:*) ;; \
        *) echo "WARNING: $BASE_IMAGE has no digest, so it may be another image tomorrow" \
            "(tests/supply/lock --base)" >&2; test "$PINNED" != yes ;; \
    esac
WORKDIR /src
# Nothing is installed that has not one of the hashes in these two files (`tests/supply/lock`). An sdist is
# built with what the first one brought, not with what an index has to offer today.
COPY requirements-build.lock requirements.lock ./
# A package index of your own: `docker build --secret id=pip_conf,src=$HOME/.config/pip/pip.conf .`
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    python3 -m venv /opt/coordinator \
    && /opt/coordinator/bin/python3 -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r requirements-build.lock \
    && /opt/coordinator/bin/python3 -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --no-build-isolation -r requirements.lock
COPY pyproject.toml LICENSE ./
COPY docs/package.md docs/
COPY coordinator coordinator
RUN /opt/coordinator/bin/python3 -m pip install --no-cache-dir --disable-pip-version-check \
        --no-index --no-deps --no-build-isolation . \
    && /opt/coordinator/bin/python3 -m pip check \
    && /opt/coordinator/bin/python3 -m pip uninstall --quiet --yes setuptools pip

FROM ${BASE_IMAGE}
ARG BASE_IMAGE
LABEL org.opencontainers.image.base.name=${BASE_IMAGE}
# Installed into an environment of its own: works on every base image that has python3 with venv.
ENV PATH=/opt/coordinator/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /data coordinator \
    && install -d -m 0700 -o coordinator -g coordinator /data /secret /secret-1 /secret-2 /secret-3 \
        /ca /tls /tls-1 /tls-2 /tls-3
COPY --from=build /opt/coordinator /opt/coordinator
USER coordinator
WORKDIR /data
VOLUME /data

# Clients; members.
EXPOSE 7071 7171
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7071/health/ready', timeout=2)"]

ENTRYPOINT ["coordinator"]
CMD ["serve"]

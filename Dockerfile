# One member. docker-compose.yml runs three of them; docs/operations.md explains the variables.
FROM python:3.11-slim

# Installed into an environment of its own: works on every base image that has python3 with venv.
ENV PATH=/opt/coordinator/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
COPY pyproject.toml LICENSE ./
COPY docs/package.md docs/
COPY coordinator coordinator
COPY recipes recipes
# A package index of your own: `docker build --secret id=pip_conf,src=$HOME/.config/pip/pip.conf .`
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    python3 -m venv /opt/coordinator \
    && python3 -m pip install --no-cache-dir --disable-pip-version-check . \
    && rm -rf /src/build /src/*.egg-info

RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /data coordinator \
    && install -d -m 0700 -o coordinator -g coordinator /data /secret
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

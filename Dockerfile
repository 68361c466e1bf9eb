# The server image. It brings no database: MINUTEBOOK_DATABASE_URL is required, and `serve` refuses to start without it.
# Settings come from MINUTEBOOK_* variables, or from /var/lib/minutebook/minutebook.toml, mounted.
# scripts/dockerfile_steps.py runs these steps where no container engine is at hand.

FROM python:3.13-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY . .
RUN python -m pip install --constraint constraints.txt setuptools \
 && python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .
# The environment gets no pip of its own: the image installs nothing later.
RUN python -m venv --without-pip /opt/minutebook \
 && python -m pip --python /opt/minutebook/bin/python install --constraint constraints.txt --only-binary :all: \
    /wheels/*.whl

FROM python:3.13-slim-bookworm
ENV PATH=/opt/minutebook/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    MINUTEBOOK_DATA_DIR=/var/lib/minutebook
RUN groupadd --gid 10001 minutebook \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/minutebook --shell /usr/sbin/nologin minutebook \
 && mkdir -m 0700 /var/lib/minutebook \
 && chown 10001:10001 /var/lib/minutebook
COPY --from=build /opt/minutebook /opt/minutebook
USER 10001:10001
WORKDIR /var/lib/minutebook
EXPOSE 8080
# No proxy: the variables for the way out must not send this check there.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["minutebook"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080", "--require-database-url"]

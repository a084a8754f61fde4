# docker build -t ottla .
# docker run -p 9092:9092 -v ottla-data:/var/lib/ottla ottla
#
# With Spark, for pipelines: docker build --build-arg EXTRAS=console,pipelines -t ottla-pipelines .
# On another base image: docker build --build-arg BASE=registry.example/python:3.12 -t ottla .
#
# Settings come from /etc/ottla/server.properties (mount your own over it) and from KAFKA_... variables, which win.

# Another base needs python (3.11 to 3.13) with venv and headers, apt-get, and useradd.
ARG BASE=python:3.13-slim
FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
ARG EXTRAS=console,registry
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src src
# The hot files are compiled here, and the libraries of the console's pages fetched; compiler and Node stay behind.
RUN python -m venv /opt/ottla \
    && /opt/ottla/bin/python src/ottla/console/fetch_libraries.py \
    && /opt/ottla/bin/pip install --no-cache-dir --disable-pip-version-check ".[$EXTRAS]" \
    && /opt/ottla/bin/python -m compileall -q /opt/ottla/lib

FROM ${BASE}
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /var/lib/ottla ottla \
    && install --directory --owner ottla --group ottla --mode 0750 /var/lib/ottla /var/lib/ottla/data \
    && install --directory /etc/ottla /opt/kafka/config
COPY --from=build /opt/ottla /opt/ottla
COPY deploy/container.properties /etc/ottla/server.properties
COPY config /opt/kafka/config
# The tools stand where scripts for Kafka's image look for them.
RUN ln -s /opt/ottla/bin /opt/kafka/bin
ENV PATH=/opt/ottla/bin:$PATH PYTHONUNBUFFERED=1
USER ottla
WORKDIR /var/lib/ottla
VOLUME /var/lib/ottla
EXPOSE 9092 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["ottla", "topics", "list", "--bootstrap-server", "localhost:9092"]
ENTRYPOINT ["ottla", "broker", "--from-environment", "--config", "/etc/ottla/server.properties"]

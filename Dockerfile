# A user's image is two lines:
#
#   FROM flechtwerk
#   COPY pipelines/ /pipelines/
#
# `docker build -t flechtwerk .` compiles in the first stage. `make image` has compiled already and brings this folder along
# in the first stage's place (--build-context), so that it needs no registry.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make image-root && mv bin /

FROM scratch
COPY --from=build /bin/image/flechtwerk /flechtwerk
COPY --from=build /bin/image/etc/ /etc/
COPY --from=build /bin/image/pipelines/ /pipelines/
COPY --from=build --chown=10001:10001 /bin/image/state/ /state/
ENV FLECHTWERK_STATE_DIR=/state
USER 10001:10001
VOLUME /state
EXPOSE 8080
ENTRYPOINT ["/flechtwerk"]
CMD ["run", "/pipelines"]

{{/* Rules for what pods may call, as they follow from what is set. */}}

{{- define "fedl2.toDns" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}

{{- define "fedl2.toApiServer" -}}
{{- with .Values.networkPolicy.apiServer }}
- ports:
    {{- range .ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .cidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . }}}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A rule for the ports in a list of words, each once; none for none. */}}
{{- define "fedl2.toPorts" -}}
{{- with . | compact | uniq }}
- ports:
    {{- range . }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}
{{- end }}

{{/* Of a URL's server or a HOST:PORT: (list where it default). */}}
{{- define "fedl2.port" -}}
{{- $port := regexFind ":[0-9]+$" (index . 1) | trimPrefix ":" | default (index . 2) }}
{{- if or (lt (int $port) 1) (gt (int $port) 65535) }}{{ fail (printf "%s: %s names no port: use 1 to 65535" (index . 0) (index . 1)) }}{{ end }}
{{- $port }}
{{- end }}

{{/* The port at which the learner enrolls; empty for none. */}}
{{- define "fedl2.enrollPort" -}}
{{- with .Values.learner.settings.identity | default dict }}
{{- if not (hasKey . "enroll_port") }}7072{{ else if .enroll_port }}{{ .enroll_port | int }}{{ end }}
{{- else }}7072
{{- end }}
{{- end }}

{{/* Ports of the learner that the agent calls, and of where it enrolls, in words. */}}
{{- define "fedl2.fleetPorts" -}}
{{- with .Values.fleet }}
{{- include "fedl2.port" (list "fleet.address" .address "") }} {{ range .furtherAddresses }}{{ include "fedl2.port" (list "fleet.furtherAddresses" . "") }} {{ end }}
{{- if .enrollAddress }}{{ include "fedl2.port" (list "fleet.enrollAddress" .enrollAddress "") }}
{{- else if .enrollmentSecret.name }}{{ ternary (include "fedl2.enrollPort" $) "7072" $.Values.learner.enabled }}
{{- end }}
{{- end }}
{{- end }}

{{/* Ports that the learner calls, in words: of its database's servers, of the learner above it, of Prometheus. */}}
{{- define "fedl2.learnerCalls" -}}
{{- with .Values.learner.settings }}
{{- with .database }}
{{- $place := regexReplaceAll "^[a-z]+://([^/?]*@)?" . "" }}
{{- $hosts := regexFind "^[^/?]*" $place }}
{{- $asked := regexFindAll "[?&](host=[^&]*:|port=)[0-9]+" $place -1 }}
{{- if or $hosts (not $asked) }}
{{- range splitList "," $hosts }}{{ include "fedl2.port" (list "learner.settings.database" . "5432") }} {{ end }}
{{- end }}
{{- range $asked }}{{ regexFind "[0-9]+$" . }} {{ end }}
{{- end }}
{{- with .upstream }}{{ include "fedl2.port" (list "learner.settings.upstream.address" .address "") }} {{ if .enrollment_file }}7072 {{ end }}{{ end }}
{{- range (.rollouts | default dict).prometheus }}
{{- $url := urlParse .address }}
{{- include "fedl2.port" (list "learner.settings.rollouts.prometheus" $url.host (ternary "443" "80" (eq $url.scheme "https"))) }} {{ end }}
{{- end }}
{{- end }}

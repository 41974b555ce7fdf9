{{/* What no schema can say in a line: values that do not go together. */}}
{{- define "fedl2.checks" -}}
{{- if gt (len .Values.namespaces) 1 }}{{ fail "namespaces: name one, or none for all: an agent follows one namespace, or every one" }}{{ end }}
{{- if eq .Values.image.tag "latest" }}{{ fail "image.tag: name a version; what latest is changes without anybody's decision" }}{{ end }}
{{- with .Values.learner }}
{{- $identities := list .enrollmentSecret.name .tlsSecret | compact }}
{{- if .enabled }}
{{- if not .address }}{{ fail "learner.address is missing: write HOST:PORT, or set learner.enabled to false" }}{{ end }}
{{- if ne (len $identities) 1 }}{{ fail "learner: name either enrollmentSecret.name or tlsSecret; the learner believes no cluster without a certificate" }}{{ end }}
{{- if ne (int $.Values.replicas) 1 }}{{ fail (printf "replicas is %d: with a learner it has to be 1, as a cluster has one name there" (int $.Values.replicas)) }}{{ end }}
{{- if and .enrollmentSecret.name (not $.Values.state.size) }}{{ fail "learner.enrollmentSecret needs state.size: its token is good once, and the certificate has to be kept" }}{{ end }}
{{- else if or .address $identities }}{{ fail "learner: something is set, but learner.enabled is false" }}
{{- end }}
{{- end }}
{{- end }}

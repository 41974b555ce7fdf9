{{/* What no schema can say in a line: values that do not go together. */}}
{{- define "fedl2.checks" -}}
{{- if and .Values.ownNodes.selector (not .Values.namespaces) }}{{ fail "ownNodes.selector needs namespaces: those whose pods are on these nodes, and no others" }}{{ end }}
{{- if and .Values.ownNodes.reserved (not .Values.ownNodes.selector) }}{{ fail "ownNodes.reserved needs ownNodes.selector: which nodes these are" }}{{ end }}
{{- if eq .Values.image.tag "latest" }}{{ fail "image.tag: name a version; what latest is changes without anybody's decision" }}{{ end }}
{{- if and .Values.kueue.enabled (ne .Values.mode "training") }}{{ fail (printf "kueue.enabled is true, and mode is %s: Kueue admits TrainingJobs, which only mode training runs" .Values.mode) }}{{ end }}
{{- with .Values.fleet }}
{{- $identities := list .enrollmentSecret.name .tlsSecret | compact }}
{{- if .address }}
{{- if ne (len $identities) 1 }}{{ fail "fleet: name either enrollmentSecret.name or tlsSecret; the learner believes no cluster without a certificate" }}{{ end }}
{{- if ne (int $.Values.replicas) 1 }}{{ fail (printf "replicas is %d: in a fleet it has to be 1, as a cluster has one name there" (int $.Values.replicas)) }}{{ end }}
{{- if and .enrollmentSecret.name (not $.Values.state.size) }}{{ fail "fleet.enrollmentSecret needs state.size: its token is good once, and the certificate has to be kept" }}{{ end }}
{{- else if or $identities .enrollAddress }}{{ fail "fleet.address is missing: write the learner's HOST:PORT" }}
{{- end }}
{{- end }}
{{- with .Values.learner }}{{ if .enabled }}
{{- if not .names }}{{ fail "learner.names is empty: list what agents dial, for the learner's certificate" }}{{ end }}
{{- if eq .image.tag "latest" }}{{ fail "learner.image.tag: name a version; what latest is changes without anybody's decision" }}{{ end }}
{{- end }}{{ end }}
{{- end }}

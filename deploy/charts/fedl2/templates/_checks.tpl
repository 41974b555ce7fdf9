{{/* What no schema can say in a line: values that do not go together. */}}
{{- define "fedl2.checks" -}}
{{- if and .Values.ownNodes.selector (not .Values.namespaces) }}{{ fail "ownNodes.selector needs namespaces: those whose pods are on these nodes, and no others" }}{{ end }}
{{- if and .Values.ownNodes.reserved (not .Values.ownNodes.selector) }}{{ fail "ownNodes.reserved needs ownNodes.selector: which nodes these are" }}{{ end }}
{{- if eq .Values.image.tag "latest" }}{{ fail "image.tag: name a version; what latest is changes without anybody's decision" }}{{ end }}
{{- if and .Values.kueue.enabled (ne .Values.mode "training") }}{{ fail (printf "kueue.enabled is true, and mode is %s: Kueue admits TrainingJobs, which only mode training runs" .Values.mode) }}{{ end }}
{{- include "fedl2.ownVolumes" (list "extraVolumes" .Values.extraVolumes) }}
{{- with .Values.fleet }}
{{- $identities := list .enrollmentSecret.name .tlsSecret | compact }}
{{- if .address }}
{{- if ne (len $identities) 1 }}{{ fail "fleet: name either enrollmentSecret.name or tlsSecret; the learner believes no cluster without a certificate" }}{{ end }}
{{- if ne (int $.Values.replicas) 1 }}{{ fail (printf "replicas is %d: in a fleet it has to be 1, as a cluster has one name there" (int $.Values.replicas)) }}{{ end }}
{{- if and .enrollmentSecret.name (not $.Values.state.size) }}{{ fail "fleet.enrollmentSecret needs state.size: its token is good once, and the certificate has to be kept" }}{{ end }}
{{- if $.Values.learner.enabled }}
{{- include "fedl2.named" (list $ "fleet.address" .address) }}
{{- range .furtherAddresses }}{{ include "fedl2.named" (list $ "fleet.furtherAddresses" .) }}{{ end }}
{{- with .enrollAddress }}{{ include "fedl2.named" (list $ "fleet.enrollAddress" .) }}{{ end }}
{{- end }}
{{- else if or $identities .enrollAddress .furtherAddresses $.Values.settings.learner }}{{ fail "fleet.address is missing: write the learner's HOST:PORT" }}
{{- end }}
{{- end }}
{{- with .Values.learner }}{{ if .enabled }}
{{- if not .names }}{{ fail "learner.names is empty: list what agents dial, for the learner's certificate" }}{{ end }}
{{- if eq .image.tag "latest" }}{{ fail "learner.image.tag: name a version; what latest is changes without anybody's decision" }}{{ end }}
{{- include "fedl2.ownVolumes" (list "learner.extraVolumes" .extraVolumes) }}
{{- with .settings.identity | default dict }}{{ if and (hasKey . "enroll_port") (eq (toString .enroll_port) "0") }}{{ fail "learner.settings.identity.enroll_port is 0, which nobody could find: name a port, or null for none" }}{{ end }}{{ end }}
{{- $database := .settings.database | default "" }}
{{- if regexMatch "://[^/?@]*:[^/?@]*@|[?&]password=" $database }}{{ fail "learner.settings.database holds a password, which everybody who reads ConfigMaps would see: take it out, and give PGPASSWORD from a Secret in learner.extraEnv" }}{{ end }}
{{- if gt (int .replicas) 1 }}
{{- if not $database }}{{ fail (printf "learner.replicas is %d: set learner.settings.database, which they share and which says who is active" (int .replicas)) }}{{ end }}
{{- if not (include "fedl2.learnersShare" $) }}{{ fail (printf "learner.replicas is %d, and each would have a volume of its own: set learner.state.accessMode to ReadWriteMany, or name a volume that all may write in learner.state.existingClaim" (int .replicas)) }}{{ end }}
{{- end }}
{{- end }}{{ end }}
{{- end }}

{{/* An address of the learner beside the agent is in its certificate: (list root where address). */}}
{{- define "fedl2.named" -}}
{{- $host := regexReplaceAll ":[0-9]+$" (index . 2) "" | trimPrefix "[" | trimSuffix "]" }}
{{- $names := (index . 0).Values.learner.names | join " " | lower | splitList " " }}
{{- if not (has (lower $host) $names) }}{{ fail (printf "%s is %s, and learner.names has no %s: add it there, or the agent does not believe the learner's certificate" (index . 1) (index . 2) $host) }}{{ end }}
{{- end }}

{{/* Names of volumes that are the chart's own: (list where volumes). */}}
{{- define "fedl2.ownVolumes" -}}
{{- $where := index . 0 }}
{{- range index . 1 }}{{ if has .name (list "settings" "state" "tmp" "training" "identity" "account") }}{{ fail (printf "%s: the chart has a volume %s of its own; give this one another name" $where .name) }}{{ end }}{{ end }}
{{- end }}

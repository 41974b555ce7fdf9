{{/*
The agent's settings: what `settings` says, and over it what follows from the other values. (Not by `merge`, which loses
what is null.) Here and elsewhere a value may be missing that has a default: `helm upgrade --reuse-values` takes those of
the release before as they were.
*/}}
{{- define "fedl2.settings" -}}
{{- $agent := dict "cluster" .Values.cluster "state_dir" "/var/lib/fedl2" }}
{{- range $section, $stated := .Values.settings }}{{ if $stated }}{{ $_ := set $agent $section (deepCopy $stated) }}{{ end }}{{ end }}
{{- $backend := $agent.backend | default dict }}
{{- $_ := set $backend "kind" "kubernetes" }}
{{- $_ := set $backend "lease_namespace" .Release.Namespace }}
{{- with .Values.namespaces }}{{ $_ := set $backend "namespaces" . }}{{ end }}
{{- with .Values.ownNodes }}{{ if .selector }}{{ $_ := set $backend "own_nodes" (dict "selector" .selector "reserved" .reserved) }}{{ end }}{{ end }}
{{- if eq .Values.mode "training" }}
{{- $training := $backend.training | default dict }}
{{- $_ := set $training "key_file" "/etc/fedl2-training/key" }}
{{- $_ := set $backend "training" $training }}
{{- end }}
{{- $_ := set $agent "backend" $backend }}
{{- $telemetry := $agent.telemetry | default dict }}
{{- $_ := set $telemetry "metrics_host" "0.0.0.0" }}
{{- $_ := set $telemetry "metrics_port" 9090 }}
{{- $_ := set $agent "telemetry" $telemetry }}
{{- with .Values.fleet }}{{ if .address }}
{{- $learner := $agent.learner | default dict }}
{{- $_ := set $learner "address" .address }}
{{- with .furtherAddresses }}{{ $_ := set $learner "further_addresses" . }}{{ end }}
{{- with .enrollAddress }}{{ $_ := set $learner "enroll_address" . }}{{ end }}
{{- if .tlsSecret }}
{{- $_ := set $learner "tls" (dict "ca_file" "/etc/fedl2-identity/ca.crt" "certificate_file" "/etc/fedl2-identity/tls.crt" "key_file" "/etc/fedl2-identity/tls.key") }}
{{- else }}
{{- $_ := set $learner "enrollment_file" "/etc/fedl2-identity/enrollment" }}
{{- end }}
{{- $_ := set $agent "learner" $learner }}
{{- end }}{{ end }}
{{- toYaml $agent }}
{{- end }}

{{/* The learner's settings, in the same way. */}}
{{- define "fedl2.learnerSettings" -}}
{{- $learner := deepCopy .Values.learner.settings }}
{{- if not $learner.initial_policy }}{{ $_ := set $learner "initial_policy" "set-taught" }}{{ end }}
{{- $_ := set $learner "state_dir" "/var/lib/fedl2" }}
{{- $_ := set $learner "listen" "0.0.0.0:7070" }}
{{- $identity := $learner.identity | default dict }}
{{- $_ := set $identity "names" .Values.learner.names }}
{{- $_ := set $learner "identity" $identity }}
{{- $telemetry := $learner.telemetry | default dict }}
{{- $_ := set $telemetry "http_listen" "0.0.0.0:9091" }}
{{- $_ := set $learner "telemetry" $telemetry }}
{{- toYaml $learner }}
{{- end }}

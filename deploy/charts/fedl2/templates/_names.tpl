{{/* Of all objects: the release's name, with the chart's where it is not in it. */}}
{{- define "fedl2.name" -}}
{{ ternary .Release.Name (printf "%s-fedl2" .Release.Name) (contains "fedl2" .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "fedl2.agent" -}}
{{ include "fedl2.name" . }}-agent
{{- end }}

{{- define "fedl2.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "fedl2.agent" .) }}
{{- end }}

{{- define "fedl2.selector" -}}
app.kubernetes.io/name: fedl2
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "fedl2.labels" -}}
{{ include "fedl2.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Modes up to the release's: each has the rights of those before it. */}}
{{- define "fedl2.modes" -}}
{{- if eq .Values.mode "training" }}advice auto training{{ else if eq .Values.mode "auto" }}advice auto{{ else }}advice{{ end }}
{{- end }}

{{/* Files of roles that the release needs: its modes', and Kueue's where that is used. */}}
{{- define "fedl2.rights" -}}
{{ include "fedl2.modes" . }}{{ if .Values.kueue.enabled }} kueue{{ end }}
{{- end }}

{{- define "fedl2.trainingKey" -}}
{{ .Values.training.keySecret.name | default (printf "%s-training" (include "fedl2.name" .)) }}
{{- end }}

{{/* Not empty where all replicas of the learner have one volume. */}}
{{- define "fedl2.learnersShare" -}}
{{- with .Values.learner.state }}{{ if or .existingClaim (eq (.accessMode | default "") "ReadWriteMany") }}true{{ end }}{{ end }}
{{- end }}

{{/* Of another name where they share: a StatefulSet's volumes, and whether a Service has an address, cannot be changed. */}}
{{- define "fedl2.learner" -}}
{{ include "fedl2.name" . }}-learner{{ if include "fedl2.learnersShare" . }}s{{ end }}
{{- end }}

{{- define "fedl2.learnerSelector" -}}
app.kubernetes.io/name: fedl2
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: learner
{{- end }}

{{- define "fedl2.learnerLabels" -}}
{{ include "fedl2.learnerSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
